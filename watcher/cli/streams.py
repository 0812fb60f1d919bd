"""`streams`: which streams there are."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any

from cyclopts import Parameter

from watcher.cli import options
from watcher.errors import ServiceError, StreamError
from watcher.watching import watch

logger = logging.getLogger("watcher")

_Table = Annotated[str | None, Parameter(metavar="TABLE", help="only this table's streams")]


def command(words: Sequence[str]) -> Callable[..., int]:
    """A line per stream: table, when it was enabled, ARN."""
    return options.spelled(_streams, options.of(watch, *options.AWS))


def _streams(*, table: _Table = None, **values: Any) -> int:
    from watcher.service.client import StreamsClient

    found = 0
    try:
        for stream in StreamsClient(options.connection(values)).list_streams(table):
            sys.stdout.write(f"{stream.table}\t{stream.label}\t{stream.arn}\n")
            found += 1
    except ServiceError as error:
        raise StreamError(str(error), about=("endpoint_url", "region")) from error
    if not found:
        where = f"on table {table}" if table else "in this region"
        logger.info(f"No streams {where}")
    return 0
