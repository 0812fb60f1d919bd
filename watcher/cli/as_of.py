"""`as-of`: the items of a table as they were at a moment."""

from __future__ import annotations

import inspect
import io
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO, Annotated, Any

import msgspec
from cyclopts import Parameter

from watcher.aws.config import AwsConfig
from watcher.aws.key_schema import in_order
from watcher.cli import commands, completers, options, past_on_spark
from watcher.errors import UsageError
from watcher.files import replacing
from watcher.formatting import style
from watcher.formatting.rows import CsvRaw, write_csv, write_table
from watcher.formatting.style import time_text
from watcher.formatting.text import grouped, printable_json
from watcher.records.filters import record_filter
from watcher.records.plain_json import plain_json
from watcher.time_machine.as_of import INEXACT_ARCHIVE, ItemsAsOf, copy_to_table, items_as_of
from watcher.time_machine.exports import Baseline
from watcher.time_machine.item_keys import ItemKey
from watcher.time_machine.sources import Sources
from watcher.time_machine.times import past_time
from watcher.watching import watch

logger = logging.getLogger("watcher")

_Words = Annotated[
    str,
    Parameter(
        name="[ARCHIVE…] STREAM TIME",
        completer=completers.files,
        help="a stream ARN, a table ARN or a table name, and a time (14:05, 2026-11-21T08:00Z) or "
        "an age (2h); first, folders that archive wrote for what is older than the stream",
    ),
]
_At = Annotated[
    str | None, Parameter(metavar="TIME", help="the time, where it does not stand at the end")
]
BASELINE = Annotated[
    list[str] | None,
    Parameter(
        metavar="EXPORT",
        completer=completers.files,
        help="a full export of the table (a folder AWSDynamoDB/ID, or its s3:// URL) to begin "
        "with, so that an archive is enough; repeat it for incremental ones after it",
    ),
]
"""A table's export, and those after it."""
_Key = Annotated[
    list[str] | None,
    Parameter(metavar="NAME=VALUE", help="one item's key; repeat it for the sort key"),
]
_FORMS = ("json", "jsonl", "csv", "table")
_FORMS_BY_SPARK = ("jsonl", "parquet")
_File = Annotated[
    str | None,
    Parameter(
        metavar="FILE",
        completer=completers.files,
        help="write to FILE, for you alone; by spark to a new folder (parquet, or -o jsonl)",
    ),
]
_TableName = Annotated[
    str | None,
    Parameter(
        metavar="TABLE", help="write to a table, an empty one or a new one with the same keys"
    ),
]
_Wire = Annotated[bool, Parameter(help="items in DynamoDB's own JSON, with types")]


def command(words: Sequence[str]) -> Callable[..., int]:
    """What to read, of when, and where to put it."""
    parts = [*options.of(watch, "filters", *options.AWS), past_on_spark.ENGINE]
    forms: tuple[str, ...] = _FORMS
    if commands.first("as-of", words, past_on_spark.ENGINE)[0] == "spark":
        parts += past_on_spark.parts()
        forms = _FORMS_BY_SPARK
    elif commands.first("as-of", words, _output((*_FORMS, "parquet")))[0] == "parquet":
        forms += ("parquet",)  # to be told better than that there is no such form
    parts.append(_output(forms))
    return options.spelled(_as_of, parts, options.of(style.set_up))


def _output(forms: tuple[str, ...]) -> inspect.Parameter:
    told = (
        "json (an array), jsonl (a line for each item; the default), csv or table; by spark jsonl "
        "or parquet"
    )
    parameter = Parameter(alias="-o", choices=forms, metavar="FORMAT", help=told)
    return options.option("output", str, None, parameter)


def _as_of(
    *words: _Words,
    at: _At = None,
    baseline: BASELINE = None,
    key: _Key = None,
    to: _File = None,
    to_table: _TableName = None,
    dynamodb_json: _Wire = False,
    csv_raw: CsvRaw = False,
    **values: Any,
) -> int:
    style.set_up(**options.values(style.set_up, values))
    output = values["output"]
    *names, time = words if at is None else (*words, at)
    if not names:
        raise UsageError("name a stream and a time: as-of orders 14:05")
    then = past_time(time, "TIME" if at is None else "at")
    one, test = None if key is None else ItemKey(key), record_filter(values["filters"])
    _refuse_two_places(output, to, to_table, dynamodb_json)
    exports = opened(baseline, values)
    if values["engine"] == "spark":
        form = _for_spark(output, to, to_table)
        count = past_on_spark.as_of(
            *(names, then, exports, one, values["filters"], form, to, dynamodb_json, values)
        )
        return _said(then, count, to)
    if output == "parquet":
        raise UsageError("it is Spark that writes it: --engine spark", "output", output)
    sources = Sources.named(names, options.connection(values), strict=True)
    if to_table is not None and sources.stream is None:
        raise UsageError("it is made like the stream's table: name the stream, too", "to_table")
    with _target(to) as out:
        found = items_as_of(sources, then, one, test, exports)
        if not found.exact and (dynamodb_json or to_table):
            raise UsageError(INEXACT_ARCHIVE)
        if to_table is not None:
            count = copy_to_table(sources, to_table, found.images())
        else:
            count = _write(found, output or "jsonl", dynamodb_json, out, csv_raw=csv_raw)
    return _said(found.at, count, to or to_table)


def _said(at: datetime, count: int, to: str | None) -> int:
    where = f" to {to}" if to else ""
    logger.info(f"As of {time_text(at)}, its whole second: {grouped(count, 'item')}{where}")
    return 0


def _for_spark(output: str | None, to: str | None, to_table: str | None) -> str:
    """The form in which Spark is to give the items. Raises UsageError."""
    if to_table is not None:
        raise UsageError("not for --engine spark: give --to and a folder", "to_table")
    form = output or ("jsonl" if to is None else "parquet")
    if form == "parquet" and to is None:
        raise UsageError("give --to and a folder", "output", form)
    return form


def opened(baseline: list[str] | None, values: Mapping[str, Any]) -> Baseline | None:
    """The exports to begin with. Raises UsageError."""
    if not baseline:
        return None
    return Baseline(baseline, AwsConfig(values["region"], values["profile"]))


def _refuse_two_places(
    output: str | None, to: str | None, to_table: str | None, wire: bool
) -> None:
    if to_table is not None and (output or to or wire):
        raise UsageError("a table takes whole items: without --to, --output, --dynamodb-json")
    if wire and output in ("csv", "table"):
        raise UsageError("DynamoDB's JSON goes with json and jsonl", "output", output)


def _write(found: ItemsAsOf, form: str, wire: bool, out: IO[str], *, csv_raw: bool) -> int:
    texts = (image.decode() for image in found.images()) if wire else _plain(found)
    if form in ("csv", "table"):
        return _write_rows(found, form, out, csv_raw=csv_raw)
    shown = printable_json if out.isatty() else str
    count = 0
    for text in texts:
        if form == "json":
            out.write("[\n" if not count else ",\n")
        out.write(shown(text) + ("\n" if form == "jsonl" else ""))
        count += 1
    if form == "json":
        out.write("\n]\n" if count else "[]\n")
    return count


def _plain(found: ItemsAsOf) -> Iterator[str]:
    return (plain_json([image])[0] or "" for image in found.images())


def _write_rows(found: ItemsAsOf, form: str, out: IO[str], *, csv_raw: bool) -> int:
    """A column for each attribute: the keys first, the others by name."""
    rest: set[str] = set()
    for image in found.images():
        rest.update(msgspec.json.decode(image, type=dict[str, msgspec.Raw]))
    names = [*in_order(tuple(found.key_names)), *sorted(rest.difference(found.key_names))]
    rows = (_cells(text, names) for text in _plain(found))
    if form == "csv":
        return write_csv(out, names, rows, raw=csv_raw)
    return write_table(out, names, list(rows))


def _cells(text: str, names: Sequence[str]) -> list[str]:
    """Strings as they are, all else as JSON; nothing where the item has no such attribute."""
    item = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    return [_cell(bytes(item[name])) if name in item else "" for name in names]


def _cell(raw: bytes) -> str:
    return msgspec.json.decode(raw, type=str) if raw[:1] == b'"' else raw.decode()


@contextmanager
def _target(to: str | None) -> Iterator[IO[str]]:
    """Standard output, or a file that is there once it is whole."""
    if to is None:
        yield sys.stdout
        return
    path = Path(to)
    if path.is_dir():
        raise UsageError(f"can't write {to}: it is a folder; name a file in it")
    place = path.resolve()  # a link stays one
    aside = place.with_name(f".{place.name}.{os.getpid()}")
    try:
        with replacing(place, aside) as whole:
            text = io.TextIOWrapper(
                io.BufferedWriter(whole), encoding="utf-8", errors="backslashreplace"
            )
            yield text
            text.flush()
            text.detach().detach()
    except OSError as error:
        raise UsageError(f"can't write {to}: {error.strerror}") from None
