"""`archive`: append every change to files."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from cyclopts import Parameter

from watcher.cli import options, spark

logger = logging.getLogger("watcher")

_COMPACT = options.option(
    "compact",
    bool,
    False,
    Parameter(help="only make few big files of the many small ones, on a disk, and end"),
)


def command(words: Sequence[str]) -> Callable[..., int]:
    """The job until stopped, or up to now with `--once`."""
    function, parts = spark.job("archive")

    def run(stream: options.Stream, /, *others: options.Others, **values: Any) -> int:
        if values["compact"]:
            from watcher.formatting.text import counted

            fewer = spark.module("compaction").compact(values["to"])
            logger.info(f"Done: {counted(fewer, 'file')} fewer")
            return 0
        totals = spark.run(function, spark.joined(stream, *others), values=values)
        return spark.ended(totals, once=values["once"], goes_on=True)

    return options.spelled(run, parts, [_COMPACT])
