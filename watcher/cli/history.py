"""`history`: what happened to an item, and how it is now."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Annotated, Any, NamedTuple

import msgspec
from cyclopts import Parameter

from watcher.cli import commands, completers, options, past_on_spark
from watcher.cli.as_of import BASELINE, opened
from watcher.formatting import style
from watcher.formatting.differences import attribute_lines, change_lines, path_text
from watcher.formatting.rows import CsvRaw, write_csv
from watcher.formatting.style import shown_time, time_text
from watcher.formatting.text import printable_key
from watcher.options import end
from watcher.records.diff import ABSENT, Absent, Attribute, changed_values, differences
from watcher.records.plain_json import plain
from watcher.records.record import Record
from watcher.time_machine.item_keys import ItemKey
from watcher.time_machine.sources import Sources
from watcher.time_machine.timeline import History, timeline
from watcher.time_machine.times import start_time
from watcher.watching import watch

SOURCES = Annotated[
    str,
    Parameter(
        name="[ARCHIVE…] STREAM",
        completer=completers.files,
        help="a stream ARN, a table ARN or a table name; before it, or in its place, folders that "
        "archive wrote and files of --print-json",
    ),
]
"""What the time machine's commands read."""
_Key = Annotated[
    list[str],
    Parameter(metavar="NAME=VALUE", help="the item's key; repeat it for the sort key"),
]
_Output = Annotated[
    str,
    Parameter(
        alias="-o",
        choices=("text", "json", "csv"),
        metavar="FORMAT",
        help="text (default), json (an array of changes), csv (a row for each difference)",
    ),
]


def command(words: Sequence[str]) -> Callable[..., int]:
    """What to read, and which item."""
    parts = [*options.of(watch, "start", "until", *options.AWS, start="trim-horizon")]
    parts.append(past_on_spark.ENGINE)
    if commands.first("history", words, past_on_spark.ENGINE)[0] == "spark":
        parts += past_on_spark.parts()
    return options.spelled(_history, parts, options.of(style.set_up))


def _history(
    *sources: SOURCES,
    key: _Key | None = None,
    baseline: BASELINE = None,
    output: _Output = "text",
    csv_raw: CsvRaw = False,
    **values: Any,
) -> int:
    style.set_up(**options.values(style.set_up, values))
    wanted, start = ItemKey(key or ()), start_time(values["start"])
    until = end(values["until"], values["start"])
    exports = opened(baseline, values)
    if values["engine"] == "spark":
        found = past_on_spark.history(sources, wanted, start, until, exports, values)
    else:
        read = Sources.named(sources, options.connection(values))
        found = timeline(read, wanted, start, until, exports)
    if output == "csv":
        _as_csv(found, raw=csv_raw)
    else:
        {"text": _as_text, "json": _as_json}[output](found)
    return 0


class _State(NamedTuple):
    """How the item was, or is, as a whole."""

    kind: str
    time: datetime
    item: dict[str, Attribute] | None


def _told(found: History) -> Iterator[Record | _State]:
    """Its changes and states, by their times."""
    before = found.before_export()
    yield from found.records[:before]
    if found.exported_at is not None:
        yield _State("EXPORT", found.exported_at.astimezone(), found.exported_wire)
    yield from found.records[before:]
    if found.asked_at is not None:
        yield _State("NOW", found.asked_at, found.now_wire)


def _as_text(found: History) -> None:
    for each in _told(found):
        lines = _state_lines(each, found) if isinstance(each, _State) else change_lines(each)
        sys.stdout.write("\n".join(lines) + "\n")


def _state_lines(state: _State, found: History) -> Iterator[str]:
    yield f"{state.kind:<6} {shown_time(state.time)} {printable_key(found.key)}"
    if state.item is None:
        yield "  (there is no such item)"
    for name, value in sorted((state.item or {}).items()):
        if name not in found.key:
            yield from attribute_lines(name, (ABSENT, value))


def _as_json(found: History) -> None:
    rows = [_row(each) for each in _told(found)]
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(rows)).decode() + "\n")


def _row(each: Record | _State) -> dict[str, Any]:
    if isinstance(each, _State):
        return {"time": time_text(each.time), "kind": each.kind, "item": _item(each.item)}
    return {
        "time": time_text(each.created_at),
        "kind": each.event_name,
        "by_ttl": each.expired_by_ttl,
        "differences": [
            {"attribute": place, **_pair(old, new)} for place, old, new in _differences(each)
        ],
        "sequence_number": each.sequence_number,
    }


def _as_csv(found: History, *, raw: bool) -> None:
    names = "time", "kind", "by_ttl", "attribute", "old", "new"
    write_csv(sys.stdout, names, _cells(found), raw=raw)


def _cells(found: History) -> Iterator[tuple[str, ...]]:
    for each in _told(found):
        if isinstance(each, _State):
            for name, value in sorted((each.item or {}).items()):
                yield time_text(each.time), each.kind, "False", name, "", _cell(value)
            continue
        head = time_text(each.created_at), each.event_name, str(each.expired_by_ttl)
        for place, old, new in _differences(each):
            yield *head, place, _cell(old), _cell(new)


def _differences(record: Record) -> Iterator[tuple[str, Attribute | Absent, Attribute | Absent]]:
    """The places that differ; nothing where the view type has no images to compare."""
    keys = record["dynamodb"]["Keys"]
    for name, pair in (changed_values(record.wire) or {}).items():
        for each in differences(*pair, (name,)) if name not in keys else ():
            yield path_text(each.path), each.old, each.new


def _pair(old: Attribute | Absent, new: Attribute | Absent) -> dict[str, Any]:
    values = {"old": old, "new": new}
    return {n: _plain(each) for n, each in values.items() if not isinstance(each, Absent)}


def _item(wire: dict[str, Attribute] | None) -> dict[str, Any] | None:
    return None if wire is None else {name: _plain(value) for name, value in wire.items()}


def _plain(value: Attribute) -> Any:
    return plain(msgspec.Raw(msgspec.json.encode(value)))


def _cell(value: Attribute | Absent) -> str:
    """Strings as they are; all else as JSON."""
    if isinstance(value, Absent):
        return ""
    return str(value["S"]) if "S" in value else msgspec.json.encode(_plain(value)).decode()
