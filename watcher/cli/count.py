"""`count`: how much changed, when and where."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Annotated, Any

from cyclopts import Parameter

from watcher.cli import completers, options
from watcher.cli.history import SOURCES
from watcher.errors import StreamError, UsageError
from watcher.formatting import style
from watcher.formatting.rows import CsvRaw, write_csv, write_table
from watcher.formatting.text import counted
from watcher.options import end
from watcher.records.filters import record_filter
from watcher.time_machine import counts
from watcher.time_machine.counts import CountRow, Counts
from watcher.time_machine.item_keys import check_key_values
from watcher.time_machine.sources import Sources
from watcher.time_machine.times import records_until, start_time
from watcher.watching import watch

logger = logging.getLogger("watcher")

_By = Annotated[
    list[str],
    Parameter(
        metavar="NAMES",
        completer=completers.words(*counts.NAMES),
        help=f"count by these: {', '.join(counts.NAMES)} (as in kind,minute); default kind",
    ),
]
_Top = Annotated[
    int,
    Parameter(
        metavar="N",
        help="only the N largest (by a time: of each minute, hour or day); 0: all; default 20",
    ),
]
_Output = Annotated[
    str,
    Parameter(
        alias="-o",
        choices=("table", "csv", "json"),
        metavar="FORMAT",
        help="table (default), csv, json (an array of rows)",
    ),
]


def command(words: Sequence[str]) -> Callable[..., int]:
    """What to count, and by what."""
    names = "start", "until", "only", "key", "filters", *options.AWS
    return options.spelled(
        _count, options.of(watch, *names, start="trim-horizon"), options.of(style.set_up)
    )


def _count(
    *sources: SOURCES,
    by: _By | None = None,
    top: _Top = 20,
    output: _Output = "table",
    csv_raw: CsvRaw = False,
    **values: Any,
) -> int:
    style.set_up(**options.values(style.set_up, values))
    if top < 0:
        raise UsageError("give 0 (all) or more", "top", str(top))
    made = Counts(counts.dimensions(by or "kind"))
    is_wanted = record_filter(values["filters"], values["key"], values["only"])
    start, until = start_time(values["start"]), end(values["until"], values["start"])
    found = Sources.named(sources, options.connection(values))
    _refuse_bad_key(found, values["key"])
    found.open(start, None if is_wanted is None else is_wanted.matching_indexes)
    made.add(filter(is_wanted, records_until(found.records(), until)))
    rows = made.rows(top)
    _print(made.by, rows, output, csv_raw=csv_raw)
    left = f", of {len(made)} rows the {len(rows)} largest" * (len(rows) < len(made))
    logger.info(f"Counted {counted(made.changes, 'change')}{left}")
    return 0


def _refuse_bad_key(sources: Sources, key: Sequence[str] | None) -> None:
    """Not a key that no item of the stream's table can have, where the role may ask for those."""
    if key and sources.stream is not None:
        with suppress(StreamError):
            check_key_values(key, sources.stream.table.description.types)


def _print(by: Sequence[str], rows: Sequence[CountRow], output: str, *, csv_raw: bool) -> None:
    names = *by, "changes"
    if output == "json":
        found = [dict(zip(names, (*row.values, row.changes), strict=True)) for row in rows]
        sys.stdout.write(json.dumps(found, indent=2, ensure_ascii=False) + "\n")
        return
    cells = [(*row.values, str(row.changes)) for row in rows]
    if output == "csv":
        write_csv(sys.stdout, names, cells, raw=csv_raw)
    else:
        write_table(sys.stdout, names, cells)
