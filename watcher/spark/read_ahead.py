"""Reads open shards ahead of the micro-batches, with a few threads."""

from __future__ import annotations

import heapq
import itertools
import math
import threading
from collections import deque
from collections.abc import Callable
from datetime import datetime
from typing import Final

from watcher.aws.model import Position, Service
from watcher.clock import Clock
from watcher.spark.buffered_shard import BufferedPage, BufferedShard, ReaderEvent
from watcher.spark.deferred_range import BEHIND_SECONDS, BacklogDetector, DeferredRange
from watcher.spark.micro_batch import LIMITS, SourceLimits
from watcher.streams.lineage import TrackedShard
from watcher.streams.messages import ReadFailed
from watcher.streams.shard_reader import ShardReader

_IDLE_POLL_SECONDS: Final = 1.0
"""The pause between two reads from which a shard counts as idle."""
IDLE_POLL_PER_SHARD_SECONDS: Final = 0.01
"""The part of this pause for each shard: a call takes some 5 ms of this one process."""
_THREADS: Final = 8
_THREAD_STOP_SECONDS: Final = 2.0
"""The longest wait, at the end, for a thread in a call."""


class ReadAhead:
    """The shards that are being read, or have buffered pages; which is next, and when it is enough.

    `connect` makes a client for each thread, as threads can't share a connection; without it
    nothing is read here but by the caller. Every use needs the `lock`. `events` are the readers'
    messages, pages included, in order: the planner handles them before it hands out a later page.
    """

    def __init__(
        self,
        arn: str,
        clock: Clock,
        *,
        connect: Callable[[], Service] | None = None,
        end: datetime | None = None,
        behind_seconds: float = BEHIND_SECONDS,
        limits: SourceLimits = LIMITS,
    ) -> None:
        self.shards: dict[str, BufferedShard] = {}
        self.events: deque[tuple[BufferedShard, ReaderEvent]] = deque()
        self.failure: BaseException | None = None
        """The error that ended the reading."""
        self._arn = arn
        self._clock = clock
        self._end = end
        self._behind_seconds = behind_seconds
        self.limits = limits
        self._due: list[tuple[float, int, BufferedShard]] = []
        self._parked: list[BufferedShard] = []
        self._order = itertools.count()
        self._bytes = 0
        self.lock = threading.RLock()
        self._has_read = threading.Condition(self.lock)
        self._work = threading.Condition(self.lock)
        self._connect = connect
        self._threads: list[threading.Thread] = []
        self._stopped = False

    def add(
        self,
        tracked: TrackedShard,
        bounded_at: datetime | None,
        *,
        closed: bool = False,
        may_defer: bool = False,
    ) -> None:
        """Starts to read a shard; with `may_defer`, executors read a backlog."""
        shard = BufferedShard(tracked, bounded_at, closed=closed, clock=self._clock)
        self.shards[tracked.id] = shard
        if may_defer:
            shard.backlog = BacklogDetector(self._arn, shard.id, self._clock, self._behind_seconds)
        self.start_reader(shard)

    def add_closed(self, tracked: TrackedShard) -> None:
        """Adds a closed shard, which executors read."""
        self.shards[tracked.id] = BufferedShard(tracked, None, closed=True)

    def start_reader(self, shard: BufferedShard, pause: float = 0.0) -> None:
        """Starts a new reader behind the last record read."""
        rate = None if shard.reader is None else shard.reader.reads.rate
        shard.reader = ShardReader(
            self._arn,
            shard.id,
            shard.frontier,
            closed=shard.closed,
            bounded_at=shard.bounded_at,
            end=self._end,
            clock=self._clock,
            # An executor reads a backlog's next page.
            prefetches=shard.backlog is None,
            rate=rate,
        )
        self._schedule(shard, max(pause, shard.reader.reads.rate.delay()))

    def read_here(self, shard: BufferedShard, undelivered: Position) -> None:
        """Reads a shard here, as executors would read past the end of the batch.

        No read of it may be under way.
        """
        self._due = [each for each in self._due if each[2] is not shard]
        heapq.heapify(self._due)
        self._parked = [each for each in self._parked if each is not shard]
        freed = shard.take_back(undelivered)
        self.start_reader(shard)
        self._make_room(freed)

    def delivered(self, shard: BufferedShard, position: Position) -> bool:
        """Notes what is delivered, up to this position; returns True if there is more to read."""
        waited = shard.is_parked and shard.deferred is not None and shard.deferred.ends_now
        freed = shard.drop_delivered(position)
        if goes_on := waited and shard.deferred is None:
            shard.progressed_at = self._clock.monotonic()
            self.start_reader(shard)
        self._make_room(freed)
        return freed > 0 or goes_on

    def _make_room(self, freed: int) -> None:
        if freed:
            self._bytes -= freed
            parked, self._parked = self._parked, []
            for each in parked:
                assert each.reader is not None
                each.progressed_at = self._clock.monotonic()
                self._schedule(each, each.reader.reads.rate.delay())

    # Which shard is next

    def seconds_until_due(self) -> float:
        """Returns the seconds until a shard is due; 0 or less: now; infinite: none will be."""
        return self._due[0][0] - self._clock.monotonic() if self._due else math.inf

    def next(self) -> BufferedShard | None:
        """Returns a due shard, if there is one; it is not due again before `take`."""
        if self.seconds_until_due() > 0:
            return None
        shard = heapq.heappop(self._due)[2]
        shard.is_being_read = True
        return shard

    def take(self, shard: BufferedShard, events: list[ReaderEvent]) -> None:
        """Handles the events of one read of a shard."""
        assert shard.reader is not None
        for each in events:
            if isinstance(each, BufferedPage):
                shard.pages.append(each)
                shard.bytes += each.size
                self._bytes += each.size
                shard.read_until = max(shard.read_until, each.last_created)
            if isinstance(each, DeferredRange):
                self._make_room(shard.defer(each))
                shard.read_until = max(shard.read_until, each.upto_created)
            self.events.append((shard, each))
        if shard.reader.is_idle and not shard.closed:
            shard.idle_at = self._clock.time()
        shard.tried_at = self._clock.monotonic()
        refusals = (isinstance(each, ReadFailed) or getattr(each, "gone", None) for each in events)
        if not any(refusals):
            shard.progressed_at = shard.tried_at
        shard.attempted, shard.is_being_read = True, False
        if not (events and isinstance(events[-1], DeferredRange)):
            self._put_back(shard)
        elif events[-1].ends_now:
            shard.is_parked, shard.idle_at = True, self._clock.time()
        else:  # the records behind the range are old, too
            self.start_reader(shard)

    def _put_back(self, shard: BufferedShard) -> None:
        assert shard.reader is not None
        if shard.reader.finished:
            return
        # Twice a micro-batch: Spark works on one while the next is being read. A shard without
        # pages is read on, as the others may have to wait for it.
        limits = self.limits
        is_full = self._bytes >= 2 * limits.batch and shard.pages
        if is_full or shard.bytes >= 2 * limits.shard:
            shard.is_parked = True
            self._parked.append(shard)
            return
        pause = shard.reader.delay
        if pause >= _IDLE_POLL_SECONDS:
            pause = max(pause, len(self.shards) * IDLE_POLL_PER_SHARD_SECONDS)
        self._schedule(shard, pause)

    def _schedule(self, shard: BufferedShard, pause: float) -> None:
        shard.is_parked = False
        heapq.heappush(self._due, (self._clock.monotonic() + pause, next(self._order), shard))

    # The threads

    def wake(self) -> None:
        """Wakes the threads, as there is more to read, and starts another one for many shards."""
        self._work.notify_all()
        most = 0 if self._connect is None else _THREADS
        if len(self._threads) < min(most, len(self.shards)):
            name = f"reader {len(self._threads)}"
            # A daemon: Spark ends this process without a warning.
            thread = threading.Thread(target=self._read_on, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def wait(self, seconds: float, least: float = 0.0) -> None:
        """Waits up to `seconds` for a read, and `least` in any case."""
        began = self._clock.monotonic()
        self._has_read.wait(seconds)
        left = began + least - self._clock.monotonic()
        self._has_read.wait_for(lambda: False, max(left, 0.0))

    def stop(self) -> None:
        """Ends the threads; waits a moment for one that is in a call."""
        with self.lock:
            self._stopped = True
            self._work.notify_all()
        for thread in self._threads:
            thread.join(_THREAD_STOP_SECONDS)

    def _read_on(self) -> None:
        assert self._connect is not None
        try:
            service = self._connect()
            while (shard := self._wait_for_due()) is not None:
                events = shard.read(service)  # outside of the lock: the others read meanwhile
                with self.lock:
                    self.take(shard, events)
                    self._work.notify()
                    self._has_read.notify_all()
        except BaseException as error:
            with self.lock:
                self.failure = self.failure or error
                self._has_read.notify_all()

    def _wait_for_due(self) -> BufferedShard | None:
        """Waits for a due shard, and returns it; None at the end."""
        with self.lock:
            while not self._stopped:
                if (shard := self.next()) is not None:
                    return shard
                seconds = self.seconds_until_due()
                self._work.wait(None if seconds == math.inf else seconds)
        return None
