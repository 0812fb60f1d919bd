"""`query`: SQL over the changes of the last 24 hours."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Annotated, Any

from cyclopts import Parameter

from watcher.cli import options, spark
from watcher.errors import UsageError

logger = logging.getLogger("watcher")

_Sql = Annotated[
    str,
    Parameter(
        name="[STREAM…] SQL",
        help="more streams, or globs; last the SQL, such as: SELECT keys, count(*) FROM changes …",
    ),
]
_Rest = Annotated[str, Parameter(show=False)]


def command(words: Sequence[str]) -> Callable[..., int]:
    """Print what the SQL finds in the view `changes`."""
    function, parts = spark.job("query")

    def run(stream: options.Stream, sql: _Sql, /, *rest: _Rest, **values: Any) -> int:
        from watcher.formatting.text import counted

        *others, sql = sql, *rest
        if not any(map(str.isspace, sql)):
            raise UsageError(f"{sql!r} is no SQL: give it last, in quotes")
        rows = spark.run(function, spark.joined(stream, *others), sql, values=values, short=True)
        logger.info(f"Done: {counted(rows, 'row')}")
        return 0

    return options.spelled(run, parts)
