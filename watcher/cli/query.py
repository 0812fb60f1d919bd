"""`query`: SQL over the changes of the last 24 hours."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Annotated, Any

from cyclopts import Parameter

from watcher.cli import options, spark

logger = logging.getLogger("watcher")

_Sql = Annotated[str, Parameter(help="such as: SELECT keys, count(*) FROM changes …")]


def command(words: Sequence[str]) -> Callable[..., int]:
    """Print what the SQL finds in the view `changes`."""
    function, parts = spark.job("query")

    def run(stream: options.Stream, sql: _Sql, /, **values: Any) -> int:
        from watcher.printing.plural import counted

        rows = spark.run(function, stream, sql, values=values, short=True)
        logger.info(f"Done: {counted(rows, 'row')}")
        return 0

    return options.spelled(run, parts)
