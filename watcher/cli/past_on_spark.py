"""`as-of` and `history` with `--engine spark`: archives of any size, with a table's export."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from cyclopts import Parameter

from watcher.cli import options, spark
from watcher.errors import UsageError
from watcher.time_machine.exports import Baseline
from watcher.time_machine.item_keys import ItemKey
from watcher.time_machine.sources import source_path
from watcher.time_machine.timeline import History

ENGINE = options.option(
    "engine",
    str,
    "here",
    Parameter(
        choices=("here", "spark"),
        metavar="ENGINE",
        group="spark",
        help="where archives are read: here (default), or by spark, of any size",
    ),
)


def parts() -> list[inspect.Parameter]:
    """The options of Spark's session."""
    return list(options.of(spark.module("session").start))


def as_of(
    archives: Sequence[str],
    at: datetime,
    baseline: Baseline | None,
    key: ItemKey | None,
    filters: Sequence[str] | None,
    output: str,
    to: str | None,
    wire: bool,
    values: Mapping[str, Any],
) -> int:
    """Print the items as they were, or write them to a folder; how many they were."""
    _refuse_streams(archives)
    if baseline is None:
        raise UsageError("give an export of the table with --baseline", "engine")
    exports = baseline

    def run(*, spark: Any, connection: Any) -> int:
        from watcher.spark.time_machine import ArchivesAsOf

        found = ArchivesAsOf(spark, archives, at, exports, key=key, filters=filters)
        return found.write(output, to, wire=wire)

    number: int = spark.run(run, values=values, short=to is None)
    return number


def history(
    archives: Sequence[str],
    key: ItemKey,
    start: datetime | None,
    until: datetime | None,
    baseline: Baseline | None,
    values: Mapping[str, Any],
) -> History:
    """What happened to one item."""
    _refuse_streams(archives)

    def run(*, spark: Any, connection: Any) -> History:
        from watcher.spark import time_machine

        return time_machine.history(spark, archives, key, start, until, baseline)

    found: History = spark.run(run, values=values, short=True)
    return found


def _refuse_streams(archives: Sequence[str]) -> None:
    streams = [name for name in archives if not source_path(name)]
    if streams or not archives:
        what = f"{streams[0]} is none" if streams else "name one"
        raise UsageError(f"spark reads archives: {what}", "engine")
