"""`history`, `as-of` and `count`: read the past from streams and archives."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import msgspec

from watcher.aws.arns import account_of
from watcher.aws.config import AwsConfig
from watcher.aws.model import WireItem, WireValue
from watcher.cli import options
from watcher.cli.options import Values
from watcher.cli.output import written_file
from watcher.declared import Opt
from watcher.errors import StreamError, UsageError
from watcher.formatting import style
from watcher.formatting.differences import attribute_lines, change_lines
from watcher.formatting.rows import write_table
from watcher.formatting.style import local_time, time_text
from watcher.formatting.text import counted, grouped, write_document, write_json, write_text
from watcher.formatting.values import printable_key
from watcher.options import WatchOptions, end
from watcher.records.diff import ABSENT, Absent, changed_values, differences
from watcher.records.paths import path_text
from watcher.records.plain_json import Plain, plain, plain_json
from watcher.records.record import Record
from watcher.time_machine import counts
from watcher.time_machine.as_of import INEXACT_ARCHIVE, as_of
from watcher.time_machine.callers import Answer, Callers, Trail
from watcher.time_machine.counts import CountRow, Counts
from watcher.time_machine.history import History, history
from watcher.time_machine.item_keys import check_key_values
from watcher.time_machine.sources import Matching, Sources, past_time, records_until, start_time

if TYPE_CHECKING:
    from watcher.cli.command_line import CommandLine

logger = logging.getLogger("watcher")

SOURCES = Annotated[
    str,
    Opt(
        "a stream ARN, a table ARN or a table name; before it, or in its place, folders that "
        "archive wrote and files of --print-json",
        name="[ARCHIVE…] STREAM",
    ),
]
"""The sources that the time machine's commands read."""


# `history`

_Key = Annotated[list[str] | None, Opt("one item's key; repeat it for the sort key", "NAME=VALUE")]


def history_command(line: CommandLine) -> options.Command:
    """Prints an item's changes and its current state."""
    names = "start", "until", "redact", *options.AWS
    parts = options.declared_by(WatchOptions, *names, start="trim-horizon")
    return options.with_options(_history, parts, options.declared_by(style.set_up))


def _history(
    *sources: SOURCES,
    key: _Key = None,
    who: options.Who = None,
    output: options.Output = "text",
    **values: options.Value,
) -> int:
    options.call(style.set_up, values)
    start, until = start_time(values["start"]), end(values["until"], values["start"])
    _log_times(start, until)
    shared = {name: values[name] for name in ("redact", *options.AWS)}
    found = history(
        *sources, key=key or (), start=start or "trim_horizon", until=until, who=who, **shared
    )
    (_as_json if output == "json" else _as_text)(found)
    if found.left_out:
        logger.warning(f"A part of the history may be missing{found.left_out}")
    return int(bool(found.left_out))


def _log_times(start: datetime | None, until: datetime | None) -> None:
    """Logs how watcher understood the given times."""
    parts = [
        f"{word} {local_time(time)}"
        for word, time in (("from", start), ("until", until))
        if time is not None
    ]
    if parts:
        logger.info(f"Changes {' '.join(parts)}")


def _as_text(found: History) -> None:
    for record, answer in _changes(found):
        first, *others = change_lines(record)
        if answer is not None:
            first += f"   {answer.text(account_of(record.stream))}"
        write_text("\n".join([first, *others]) + "\n")
    if found.asked_at is None:
        return
    write_text(f"{'NOW':<6} {time_text(found.asked_at)} {printable_key(found.key)}\n")
    if found.now_wire is None:
        write_text("  (there is no such item)\n")
    for name, value in sorted((found.now_wire or {}).items()):
        for line in attribute_lines(name, (ABSENT, value)) if name not in found.key else ():
            write_text(f"{line}\n")


def _changes(found: History) -> Iterator[tuple[Record, Answer | None]]:
    """Yields the changes, each with its caller with --who."""
    answers: list[Answer] | list[None] = found.answers or [None] * len(found)
    return zip(found.records, answers, strict=True)


def _as_json(found: History) -> None:
    rows = [_row(record, answer) for record, answer in _changes(found)]
    if found.asked_at is not None:
        rows.append(
            {"time": time_text(found.asked_at), "kind": "NOW", "item": _item(found.now_wire)}
        )
    write_document(rows)


def _row(record: Record, answer: Answer | None) -> dict[str, object]:
    return {
        "time": time_text(record.created_at),
        "kind": record.event_name,
        "by_ttl": record.expired_by_ttl,
        **({} if answer is None else {"who": msgspec.to_builtins(answer)}),
        "differences": [
            {"attribute": path, **_pair(old, new)} for path, old, new in _differences(record)
        ],
        "sequence_number": record.sequence_number,
    }


def _differences(record: Record) -> Iterator[tuple[str, WireValue | Absent, WireValue | Absent]]:
    """Yields the places that differ; nothing if the stream has no images to compare."""
    keys = record["dynamodb"]["Keys"]
    for name, (old, new) in (changed_values(record.wire) or {}).items():
        for each in differences(old, new, (name,)) if name not in keys else ():
            yield path_text(each.path), each.old, each.new


def _pair(old: WireValue | Absent, new: WireValue | Absent) -> dict[str, object]:
    values = {"old": old, "new": new}
    return {n: _plain(each) for n, each in values.items() if not isinstance(each, Absent)}


def _item(wire: WireItem | None) -> dict[str, object] | None:
    return None if wire is None else {name: _plain(value) for name, value in wire.items()}


def _plain(value: WireValue) -> Plain:
    return plain(msgspec.Raw(msgspec.json.encode(value)))


# `as-of`

_Words = Annotated[
    str,
    Opt(
        "a stream ARN, a table ARN or a table name, and a time (2026-11-21T08:00Z) or an age "
        "(2h); before them, folders that archive wrote, for older changes",
        name="[ARCHIVE…] STREAM TIME",
    ),
]
_Baseline = Annotated[
    str | None,
    Opt(
        "a full export of the table (a folder AWSDynamoDB/ID, or its s3:// URL) to begin with, so "
        "that an archive is enough",
        "EXPORT",
    ),
]
_File = Annotated[str | None, Opt("write to FILE, readable by you alone", "FILE")]
_Wire = Annotated[bool, Opt("items in DynamoDB's own JSON, with types")]


def as_of_command(line: CommandLine) -> options.Command:
    """Prints a table's items as they were at a moment."""
    parts = options.declared_by(WatchOptions, "redact", *options.AWS)
    return options.with_options(_as_of, parts, options.declared_by(style.set_up))


def _as_of(
    *words: _Words,
    baseline: _Baseline = None,
    key: _Key = None,
    to: _File = None,
    dynamodb_json: _Wire = False,
    **values: options.Value,
) -> int:
    options.call(style.set_up, values)
    *names, time = words or ("",)
    if not names:
        raise UsageError("name a stream and a time: as-of orders 2h")
    moment = past_time(time, "TIME")
    shared = {name: values[name] for name in ("redact", *options.AWS)}
    where = f" to {to}" if to else ""
    with nullcontext(sys.stdout) if to is None else written_file(to) as out:
        if to is not None:  # before anything is written, how the time was understood
            logger.info(f"Writes the items as of {local_time(moment)}{where}")
        found = as_of(*names, at=moment, key=key, baseline=baseline, **shared)
        if dynamodb_json and not found.exact:
            raise UsageError(INEXACT_ARCHIVE)
        count = 0
        for image in found.images():
            text = image.decode() if dynamodb_json else plain_json([image])[0] or ""
            write_json(f"{text}\n", out)
            count += 1
    told = f"{grouped(count, 'item')}{where}"
    logger.info(f"As of {time_text(found.at)}, its whole second: {told}")
    return 0


# `count`

_By = Annotated[
    list[str] | None,
    Opt(
        f"count by these: {', '.join(counts.NAMES)} (as in kind,minute); default kind, with "
        "--who caller",
        "NAMES",
    ),
]
_Top = Annotated[
    int, Opt("only the N largest (by a time: of each minute, hour or day); 0: all; default 20", "N")
]
_CountForm = Annotated[
    str,
    Opt(
        "table (default), json (an array of rows)",
        "FORMAT",
        alias="-o",
        choices=("table", "json"),
    ),
]


def count_command(line: CommandLine) -> options.Command:
    """Counts changes by the dimensions of `--by`."""
    names = "start", "until", "only", "key", "filters", "grep", "redact", *options.AWS
    return options.with_options(
        _count,
        options.declared_by(WatchOptions, *names, start="trim-horizon"),
        options.declared_by(style.set_up),
    )


def _count(
    *sources: SOURCES,
    origins: options.Origins,
    by: _By = None,
    top: _Top = 20,
    who: options.Who = None,
    output: _CountForm = "table",
    **values: options.Value,
) -> int:
    options.call(style.set_up, values)
    if top < 0:
        raise UsageError("give 0 (all) or more", "top", str(top))
    names = counts.dimensions(by or (counts.CALLER if "who" in origins.typed else "kind"))
    made = Counts(names, redaction=options.redaction(values))
    trail = _trail_of(names, who, origins, values)
    found, callers, records, ending = read_changes(sources, values, trail)
    made.callers = callers
    made.add(records)
    if trail is not None and callers is not None:
        trail.read(callers)
        made.name_callers()
    rows = made.rows(top)
    _print_counts(made.by, rows, output)
    left = f", of {len(made)} rows the {len(rows)} largest" * (len(rows) < len(made))
    logger.info(f"Counted {counted(made.changes, 'change')}{left}{ending()}")
    return int(bool(found.left_out))


def _trail_of(
    names: Sequence[str],
    who: str | None,
    origins: options.Origins,
    values: Values,
) -> Trail | None:
    """Opens the trail to count callers. Raises UsageError for one without the other."""
    if counts.CALLER in names:
        if who is None:
            raise UsageError("it needs CloudTrail's logs: --who PLACE", "by", counts.CALLER)
        return Trail(who, AwsConfig(values["region"], values["profile"]))
    if "who" in origins.typed:  # a default is for other commands
        text = f"nothing asks for callers: --by {','.join([*names, counts.CALLER])}"
        raise UsageError(text, "who", who)
    return None


def read_changes(
    names: Sequence[str], values: Values, trail: Trail | None
) -> tuple[Sources, Callers | None, Iterator[Record], Callable[[], str]]:
    """Opens sources; returns them, the finder of callers if there is a trail, and the changes.

    The last one returns what could not be read and that none matched, for the end of a sentence.
    Raises UsageError for a key that no item of the table can have, if the role may describe it,
    and for a filter of images that the stream lacks.
    """
    matches = options.record_filter(values)
    start, until = start_time(values["start"]), end(values["until"], values["start"])
    found = Sources.named(names, options.connection(values))
    if values["key"] and found.stream is not None:
        with suppress(StreamError):
            check_key_values(values["key"], found.stream.table.description.types)
    callers = None if trail is None else Callers(found.table_arn, start, until)
    matching = None if matches is None else Matching(matches)
    # For callers all changes are read: a call that made one of them has not made another.
    is_cut = matching is not None and callers is None
    found.open(start, matching.matching_indexes if is_cut and matching else None, tells_expiry=True)
    if matches is not None:
        matches.refuse_view(found.view_type)
    records = records_until(found.records(), until)
    if callers is not None:
        records = (each for each in records if callers.add_change(each))

    def ending() -> str:
        return found.left_out + (matching.unmatched if matching else "")

    # To filter by None would look into each record, which decodes all of it.
    chosen = iter(records) if matching is None else filter(matching, records)
    return found, callers, chosen, ending


def _print_counts(by: Sequence[str], rows: Sequence[CountRow], output: str) -> None:
    names = *by, "changes"
    if output == "json":
        found = [dict(zip(names, (*row.values, row.changes), strict=True)) for row in rows]
        write_document(found)
    else:
        write_table(sys.stdout, names, [(*row.values, str(row.changes)) for row in rows])
