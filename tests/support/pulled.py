"""A `Stream` of given services, without connections, on a given clock."""

from __future__ import annotations

import weakref
from functools import partial

from watcher.aws.model import Service
from watcher.call_pool import CallPool
from watcher.clock import CLOCK, Clock
from watcher.pull.table_snapshot import Items
from watcher.records.filters import RecordFilter
from watcher.stream import Start, Stream, StreamOptions


class Pulled(Stream):
    """Reads one service; with a snapshot, the table's `items` before its changes."""

    def __init__(
        self,
        service: Service,
        arn: str,
        start: Start = "trim_horizon",
        *,
        record_filter: RecordFilter | None = None,
        items: Items | None = None,
        snapshot: bool = True,
        clock: Clock = CLOCK,
        calls: CallPool | None = None,
        **options: object,
    ) -> None:
        calls = calls or CallPool(threads=False)
        made = StreamOptions(stream=arn, start=start, snapshot=snapshot, **options)  # type: ignore[arg-type]
        made.__dict__["record_filter"] = record_filter  # in place of what the options describe
        self._close = weakref.finalize(self, partial(calls.close, wait=False))
        self._begin(made, service, arn, items=items, calls=calls, clock=clock)
