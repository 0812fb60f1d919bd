"""`verify`: proves that a copy equals its table, or names the changes that it lacks."""

from __future__ import annotations

import importlib.util
import logging
import re
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Annotated

import msgspec

from watcher.aws.arns import table_name
from watcher.aws.config import AwsConfig
from watcher.aws.model import WireValue
from watcher.cli import options
from watcher.cli.output import Line, status_line
from watcher.cli.status import bar
from watcher.declared import Opt
from watcher.errors import UsageError, blame, refuse_unless_positive
from watcher.formatting import style
from watcher.formatting.differences import shortened, shown_pair, shown_value
from watcher.formatting.style import time_text
from watcher.formatting.text import grouped, printable, write_document, write_text
from watcher.formatting.values import printable_key
from watcher.options import WatchOptions
from watcher.records.diff import Absent, differences
from watcher.records.paths import path_text
from watcher.records.record import creation_time, native, wire_item
from watcher.time_machine.archives import is_archive
from watcher.time_machine.copies import (
    Copy,
    FileCopy,
    TableCopy,
    copy_path,
    is_mirror,
    readable,
)
from watcher.time_machine.sources import Sources
from watcher.time_machine.table import open_table
from watcher.time_machine.verify import (
    CopyDifference,
    DifferentItem,
    Verification,
    Verifier,
)
from watcher.times import parse_seconds
from watcher.version import install

if TYPE_CHECKING:
    from watcher.cli.command_line import CommandLine

logger = logging.getLogger("watcher")

_ID_CHARACTERS = 12
_Sources = Annotated[
    str,
    Opt(
        "a stream ARN, a table ARN or a table name; before it, archives for older changes",
        name="[ARCHIVE…] STREAM",
    ),
]
_With = Annotated[
    str | None,
    Opt(
        "a mirror's folder, a table, a file or folder of Parquet or JSON lines",
        "COPY",
        name="--with",
    ),
]
_Ignore = Annotated[
    list[str] | None, Opt("an attribute that does not count; repeat it", "ATTRIBUTE")
]
_Lag = Annotated[
    str, Opt("a copy without a position may lack changes younger than this; default 1m", "AGE")
]
_Limit = Annotated[float | None, Opt("read units a second for each table's scan", "UNITS")]


def verify_command(line: CommandLine) -> options.Command:
    """Compares a table with a copy."""
    return options.with_options(
        _compare,
        options.declared_by(WatchOptions, "redact", *options.AWS),
        options.declared_by(style.set_up),
    )


def _compare(
    *sources: _Sources,
    with_: _With = None,
    ignore: _Ignore = None,
    lag: _Lag = "1m",
    read_limit: _Limit = None,
    output: options.Output = "text",
    **values: options.Value,
) -> int:
    options.refuse_redaction(values, "it shows both values of what differs")
    options.call(style.set_up, values)
    if with_ is None:
        raise UsageError("name a copy: verify orders --with ./mirror/orders")
    connection = options.connection(values)
    refuse_unless_positive("read_limit", read_limit, "capacity units a second")
    with blame("lag"):
        age = timedelta(seconds=parse_seconds(lag))
    with status_line() as line:
        copy = _copy(with_, connection, read_limit)
        verifier = Verifier(
            Sources.named(sources, connection, strict=True),
            copy,
            lag=age,
            ignore=ignore or (),
            read_limit=read_limit,
            on_progress=partial(_show_progress, line),
        )
        what = f"{' '.join(sources)} with {copy.label}"
        cost = grouped(verifier.table.read_units, "read unit")
        logger.info(f"Compares {what}; the table's scan takes {cost}")
        found = verifier.run()
        _print(verifier, found, output)
    return 1 if found.differing else 0


def _show_progress(line: Line | None, items: int, units: float, share: float) -> None:
    if line is not None:
        line.set(f"{bar(share)} | {grouped(items, 'item')} | {units:,.0f} read units")


def _copy(name: str, connection: AwsConfig, read_limit: float | None) -> Copy:
    """Opens a copy by its name. Raises UsageError, StreamError."""
    name = re.sub("^s3a://", "s3://", name)  # as Spark's engine calls it
    in_s3 = name.startswith("s3://")
    if "://" in name and not in_s3:
        raise UsageError(
            "it is no copy that can be compared: export a database to Parquet, as DuckDB's COPY "
            "does, and give the file",
            "with_",
            name,
        )
    path = None if in_s3 else copy_path(name)
    if path is not None and is_archive(path):
        raise UsageError("it holds changes, not items: give a copy of the items", "with_", name)
    if path is not None and not is_mirror(path):
        return FileCopy(path)
    if in_s3 or path is not None:
        return _mirror(name)
    if name.startswith("arn:"):  # its own region counts, not that of the other table
        connection = msgspec.structs.replace(connection, region=None)
    return TableCopy(open_table(name, connection), f"table {name}", read_limit)


def _mirror(to: str) -> Copy:
    if importlib.util.find_spec("deltalake") is None:
        raise UsageError(f"reading a mirror needs delta-rs: {install('mirror')}")
    with readable(to):
        from watcher.mirror.copy import MirrorCopy

        return MirrorCopy(to)


def _print(verifier: Verifier, found: Verification, output: str) -> None:
    if output == "json":
        write_document(_document(verifier, found))
    else:
        name = table_name(verifier.table.description.arn)
        items = f"{found.items:,} items, {found.differing:,} differ"
        write_text(f"{name} at {time_text(found.at)} = {verifier.copy.label}: {items}\n")
        for item in found.found:
            for each in item.differences:
                write_text(f"  {_line(item, each)}\n")
        if found.differing > len(found.found):
            write_text(f"  and {grouped(found.differing - len(found.found), 'item')} more\n")
    if found.not_compared:
        names = ", ".join(map(printable, sorted(found.not_compared)))
        logger.info(f"Not compared, as the copy has no such columns: {names}")


def _line(item: DifferentItem, difference: CopyDifference) -> str:
    key = printable_key(wire_item(msgspec.json.encode(item.key)))
    return f"{key}   {_sides(item, difference)}   {_reason(item, difference)}"


def _sides(item: DifferentItem, difference: CopyDifference) -> str:
    name, there, here, _ = difference
    if name is None:
        if item.copies > 1:
            return f"{item.copies} times there"
        return "only here" if item.there is None else "only there"
    parts = []
    for path, old, new in differences(there, here, (name,)):
        shown_there, shown_here = _shown(old, new)
        sides = f"{shown_there} there, {shown_here} here"
        parts.append(f"{printable(path_text(path))}: {sides}")
    return "; ".join(parts)


def _shown(there: WireValue | Absent, here: WireValue | Absent) -> Sequence[str]:
    if isinstance(there, Absent) or isinstance(here, Absent):
        sides = (there, here)
        return ["nothing" if isinstance(e, Absent) else shown_value(native(e)) for e in sides]
    return shown_pair(native(there), native(here))


def _reason(item: DifferentItem, difference: CopyDifference) -> str:
    change = difference.missing
    if item.copies > 1:
        return "several items have this key"
    if change is None:
        return "no change explains it"
    when = "" if change.at is None else f" {time_text(creation_time(change.at))}"
    number = shortened(change.number, _ID_CHARACTERS)
    return f"change {number} ({change.kind}{when}) is missing there"


def _document(verifier: Verifier, found: Verification) -> dict[str, object]:
    return {
        "table": table_name(verifier.table.description.arn),
        "copy": verifier.copy.label,
        "at": time_text(found.at),
        "items": found.items,
        "differ": found.differing,
        "not_compared": sorted(found.not_compared),
        "differences": [_row(item, each) for item in found.found for each in item.differences],
    }


def _row(item: DifferentItem, difference: CopyDifference) -> dict[str, object]:
    name, *of_attribute, missing = difference
    there, here = (item.there, item.here) if name is None else of_attribute
    cause = "repeated" if item.copies > 1 else "unexplained" if missing is None else "missing"
    row: dict[str, object] = {
        "key": item.key,
        "attribute": name,
        "there": None if isinstance(there, Absent) else there,
        "here": None if isinstance(here, Absent) else here,
        "cause": cause,
        "change": None,
    }
    if missing is not None:
        at = None if missing.at is None else time_text(creation_time(missing.at))
        row["change"] = {"sequence_number": missing.number, "kind": missing.kind, "time": at}
    return row
