"""Reads all records of a stream up to now, in one process with a few threads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent import futures
from datetime import UTC, datetime

import msgspec

from watcher.aws.model import (
    AtTime,
    Latest,
    Listing,
    Position,
    Service,
    ShardKey,
    TrimHorizon,
)
from watcher.call_pool import CallPool
from watcher.clock import CLOCK, Clock, DueQueue
from watcher.pull.shard_pool import PooledShard, PullOptions, ShardPool
from watcher.records.record import Record
from watcher.streams.checkpoint_format import Token
from watcher.streams.lineage import ShardStatus, TrackedShard
from watcher.streams.losses import Losses, held_since
from watcher.streams.messages import PageFilter

_READS_AT_ONCE = 32
"""The largest number of reads side by side …"""
_PAGES_AT_ONCE = 8
"""… and of those that are likely to return records, each of which takes memory for a page."""
_BACKLOG_WAIT_SECONDS = 0.1
"""The longest wait for an answer while no read is due."""
_LEAST_BACKLOG_WAIT_SECONDS = 0.01
"""The shortest wait for a shard that is due soon."""


class BacklogReader:
    """Reads a stream's records from `start` (None: its trim horizon) up to now.

    A token as `start` means all records behind its positions. `read_on` then reads the later ones.

    The changes of an item come in order, page by page, but shards are not merged by time, for which
    each would have to wait for the slowest. Memory holds few pages. Records that the `page_filter`
    rejects may be left out. With `strict`, records that are lost before they can be read raise
    DataLossError; else the loss is logged as a warning, and added to `losses`. `listing_service`
    makes the calls that must not delay reads. Raises StreamError.
    """

    def __init__(
        self,
        arn: str,
        service: Service,
        start: datetime | Token | None = None,
        *,
        strict: bool = False,
        page_filter: PageFilter | None = None,
        clock: Clock = CLOCK,
        listing_service: Service | None = None,
        calls: CallPool | None = None,
    ) -> None:
        self._arn = arn
        self._service = service
        self._listing_service = listing_service or service
        self._options = PullOptions(up_to_now=True, page_filter=page_filter)
        self._clock = clock
        self._losses = Losses(is_error=strict, clock=clock)
        self.losses = self._losses.lines
        self._calls = calls or CallPool()
        self._waiting = DueQueue[PooledShard](clock)
        """The shards that wait for their next read."""
        begin: Position | Token = TrimHorizon()
        if start is not None:
            begin = start if isinstance(start, Token) else AtTime(start.astimezone(UTC))
        self._pool = self._new_pool(begin)

    @property
    def listing(self) -> Listing:
        """The last listing of the stream, with the service's time of it."""
        return self._pool.listing

    @property
    def since(self) -> datetime:
        """The time from which the stream holds every change: a day ago, or its enabling."""
        return held_since(self.listing, self._pool.coordinator.now)

    @property
    def is_trimmed(self) -> bool:
        """True where `since` moves on with the time, as older changes expire."""
        return self.since != self.listing.created

    def warn_if_starting_late(self) -> None:
        """Logs a warning if the stream began only after the start time."""
        self._losses.warn_if_starting_late(self.listing)

    @property
    def has_ended(self) -> bool:
        """True if the stream gets no more records."""
        return self._pool.coordinator.has_ended

    def read(self) -> Iterator[Record]:
        """Yields all records up to now (or up to the end, if the stream has ended)."""
        pool = self._pool
        try:
            while True:
                for shard in pool.refresh():
                    self._waiting.put(shard, 0.0)
                # The read of the only shard needs no thread.
                pool.start_reads(self._take_due(), inline=1 if len(pool.shards) == 1 else 0)
                is_idle = not pool.reading
                answered = pool.collect(
                    pool.reading.values(), self._wait_seconds(), return_when=futures.FIRST_COMPLETED
                )
                for shard, found in answered:
                    for page in found:
                        shard_key = ShardKey(self._arn, shard.tracked.id)
                        yield from page.opened(shard_key)
                        shard.tracked.move_behind(page.last_sequence_number)
                    if shard.has_ended:
                        pool.finish(shard)
                    else:
                        self._waiting.put(shard, shard.due_at - self._clock.monotonic())
                if pool.confirm_caught_up():
                    return pool.coordinator.log_left_open()
                if is_idle:
                    self._clock.sleep(self._wait_seconds())
        finally:
            pool.forget_reads()
            self._calls.close(wait=False)

    def read_on(self) -> Iterator[Record]:
        """Yields all records that came since the last read, up to now."""
        resumed = [
            shard
            if shard.status is ShardStatus.FINISHED
            else msgspec.structs.replace(shard, status=ShardStatus.WAITING)
            for shard in self._pool.coordinator.lineage.shards.values()
        ]
        self._pool = self._new_pool(Latest(), resumed)
        self._waiting = DueQueue(self._clock)
        return self.read()

    def _new_pool(
        self, start: Position | Token, resumed: Sequence[TrackedShard] | None = None
    ) -> ShardPool:
        pool = ShardPool(
            self._arn,
            start,
            resumed,
            service=self._service,
            losses=self._losses,
            calls=self._calls,
            clock=self._clock,
            options=self._options,
        )
        pool.listing_service = self._listing_service
        return pool

    def _take_due(self) -> list[PooledShard]:
        """Returns the shards that are due, as many as may be read beside the others."""
        reading = self._pool.reading.values()
        pages = _PAGES_AT_ONCE - sum(not each.reader.was_empty for each in reading)
        due: list[PooledShard] = []
        while pages > 0 and len(reading) + len(due) < _READS_AT_ONCE and self._waiting.due_in <= 0:
            due.append(self._waiting.pop())
            pages -= not due[-1].reader.was_empty
        return due

    def _wait_seconds(self) -> float:
        """Returns the seconds until a shard is due; a listing may be due sooner."""
        return min(max(self._waiting.due_in, _LEAST_BACKLOG_WAIT_SECONDS), _BACKLOG_WAIT_SECONDS)
