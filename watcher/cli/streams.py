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

_Table = Annotated[
    str | None, Parameter(metavar="TABLE", help="only this table's streams: its name or ARN")
]


def command(words: Sequence[str]) -> Callable[..., int]:
    """A line per stream: table, when it was enabled, ARN."""
    return options.spelled(_streams, options.of(watch, *options.AWS))


def _streams(*, table: _Table = None, **values: Any) -> int:
    from watcher.service.client import StreamsClient
    from watcher.service.current_stream import streams_of
    from watcher.service.names import region_in

    found = 0
    try:
        streams = StreamsClient(options.connection(values), table and region_in(table))
        for stream in streams_of(streams, table) if table else streams.list_streams():
            sys.stdout.write(f"{stream.table}\t{stream.label}\t{stream.arn}\n")
            found += 1
    except ServiceError as error:
        raise StreamError(str(error), about=("endpoint_url", "region")) from error
    if not found:
        where = f"on table {table}" if table else "in this region"
        logger.info(f"No streams {where}")
    return 0
