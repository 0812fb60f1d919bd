"""`history`: what happened to an item, and how it is now."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter

from watcher.arguments import end
from watcher.cli import completers, options
from watcher.past.item_keys import OneKey
from watcher.past.sources import Sources
from watcher.past.timeline import History, timeline
from watcher.past.times import begin
from watcher.printing import style
from watcher.printing.differences import attribute_lines, change_lines, place_text
from watcher.printing.escaping import printable_key
from watcher.printing.rows import CsvRaw, write_csv
from watcher.printing.style import time_text
from watcher.record.compare import ABSENT, Absent, Attribute, changed_values, differences
from watcher.record.images import plain
from watcher.record.record import Record
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
    parts = options.of(watch, "start", "until", *options.AWS, start="trim-horizon")
    return options.spelled(_history, parts, options.of(style.set_up))


def _history(
    *sources: SOURCES,
    key: _Key | None = None,
    output: _Output = "text",
    csv_raw: CsvRaw = False,
    **values: Any,
) -> int:
    style.set_up(**options.values(style.set_up, values))
    wanted, start = OneKey(key or ()), begin(values["start"])
    until = end(values["until"], values["start"])
    found = timeline(Sources.named(sources, options.connection(values)), wanted, start, until)
    if output == "csv":
        _as_csv(found, raw=csv_raw)
    else:
        {"text": _as_text, "json": _as_json}[output](found)
    return 0


def _as_text(found: History) -> None:
    for record in found:
        sys.stdout.write("\n".join(change_lines(record)) + "\n")
    if found.asked_at is None:
        return
    sys.stdout.write(f"{'NOW':<6} {time_text(found.asked_at)} {printable_key(found.key)}\n")
    if found.now_wire is None:
        sys.stdout.write("  (there is no such item)\n")
    for name, value in sorted((found.now_wire or {}).items()):
        if name not in found.key:
            sys.stdout.write("\n".join(attribute_lines(name, (ABSENT, value))) + "\n")


def _as_json(found: History) -> None:
    rows: list[dict[str, Any]] = [
        {
            "time": time_text(record.created_at),
            "kind": record.event_name,
            "by_ttl": record.expired_by_ttl,
            "differences": [
                {"attribute": place, **_pair(old, new)} for place, old, new in _differences(record)
            ],
            "sequence_number": record.sequence_number,
        }
        for record in found
    ]
    if found.asked_at is not None:
        rows.append({"time": time_text(found.asked_at), "kind": "NOW", "item": _item(found)})
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(rows)).decode() + "\n")


def _as_csv(found: History, *, raw: bool) -> None:
    names = "time", "kind", "by_ttl", "attribute", "old", "new"
    write_csv(sys.stdout, names, _cells(found), raw=raw)


def _cells(found: History) -> Iterator[tuple[str, ...]]:
    for record in found:
        head = time_text(record.created_at), record.event_name, str(record.expired_by_ttl)
        for place, old, new in _differences(record):
            yield *head, place, _cell(old), _cell(new)
    if found.asked_at is not None:
        for name, value in sorted((found.now_wire or {}).items()):
            yield time_text(found.asked_at), "NOW", "False", name, "", _cell(value)


def _differences(record: Record) -> Iterator[tuple[str, Attribute | Absent, Attribute | Absent]]:
    """The places that differ; nothing where the view type has no images to compare."""
    keys = record["dynamodb"]["Keys"]
    for name, pair in (changed_values(record.wire) or {}).items():
        for each in differences(*pair, (name,)) if name not in keys else ():
            yield place_text(each.place), each.old, each.new


def _pair(old: Attribute | Absent, new: Attribute | Absent) -> dict[str, Any]:
    values = {"old": old, "new": new}
    return {n: _plain(each) for n, each in values.items() if not isinstance(each, Absent)}


def _item(found: History) -> dict[str, Any] | None:
    if found.now_wire is None:
        return None
    return {name: _plain(value) for name, value in found.now_wire.items()}


def _plain(value: Attribute) -> Any:
    return plain(msgspec.Raw(msgspec.json.encode(value)))


def _cell(value: Attribute | Absent) -> str:
    """Strings as they are; all else as JSON."""
    if isinstance(value, Absent):
        return ""
    return str(value["S"]) if "S" in value else msgspec.json.encode(_plain(value)).decode()
