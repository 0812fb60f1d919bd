"""Delivers several shards' records at once, those of each shard one after the other."""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence, Set
from functools import partial

from watcher.aws.arns import table_of
from watcher.aws.model import ShardKey
from watcher.call_pool import CallPool
from watcher.clock import CLOCK, Clock
from watcher.delivery.dispatcher import Dispatcher
from watcher.delivery.failures import which_of
from watcher.delivery.output import OutputClosed
from watcher.delivery.progress import Progress, ShardProgress
from watcher.delivery.protocol import Delivery, EndOfReading, HandlerStep
from watcher.errors import HandlerError
from watcher.observability.heartbeat import Heartbeat, Phase
from watcher.records.record import Record
from watcher.shutdown import Overdue
from watcher.streams.lineage import TrackedShard
from watcher.streams.messages import Page, ReaderEnded

logger = logging.getLogger("watcher")

_SHARD_BYTES = 4 * 1024 * 1024
"""The size of a shard's waiting pages at which its reading pauses."""
_ALL_BYTES = 64 * 1024 * 1024
"""The limit for all shards, in addition to twice `_SHARD_BYTES` for each thread."""
_TURN_SECONDS = 0.5
"""The time after which a shard gives its thread to another one."""
_TICK_SECONDS = 0.2
"""The delay between checks of waiting batches, the same as the loop's."""
_LOOK_SECONDS = 0.02
"""The loop's delay between checks whether a handler has made room, or ended."""
_RESERVE_SECONDS = 5.0
"""The time for which no change starts, so that a snapshot's items get their turn; then the other
way round."""


Work = Callable[[], Iterator[None]]
"""A generator of steps; after each of them the simulation may switch to another one."""


class HandlerPool:
    """Up to `size` threads, started on demand; the simulation has a substitute."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.is_open = True
        """False once `close` was called."""
        self._calls = CallPool(most=size)

    def submit(self, work: Work) -> None:
        """Runs this work in the next free thread, in the order of submission."""
        if self.is_open:
            self._calls.start([partial(_run, work)], few=0)

    def close(self) -> None:
        """Refuses more work."""
        self.is_open = False
        self._calls.close(wait=False)


def _run(work: Work) -> None:
    for _ in work():
        pass


class ShardQueue:
    """The waiting records of one shard."""

    def __init__(self, shard_key: ShardKey, shard: TrackedShard) -> None:
        self.shard_key = shard_key
        self.progress = ShardProgress(shard_key, shard)
        self.jobs: deque[Page | Callable[[], object]] = deque()
        self.is_taken = False
        """True while a thread works for the shard, or is about to."""
        self.records: Iterator[Record | None] | None = None
        """The rest of the page that is being delivered; None for a filtered record."""
        self.bytes = 0
        self.in_hand: Record | None = None
        """The record that a handler has."""
        self.step_since = math.inf
        """The time (monotonic) at which the shard's current step began; infinite: no step."""
        self.ends: list[ReaderEnded | None] = []
        """The ends of its reading, returned once all records are delivered."""

    @property
    def is_empty(self) -> bool:
        """True while no record waits and no thread works for the shard."""
        return not (self.is_taken or self.jobs)


class ConcurrentDelivery(Delivery):
    """Delivers each shard's records in order, those of several shards at the same time.

    The end of a shard's reading is returned behind its last record: so its children start only
    then, and it is not read again while records of it wait. See `Delivery`.
    """

    def __init__(
        self,
        *,
        pool: HandlerPool,
        dispatcher: Dispatcher,
        progress: Progress,
        heartbeat: Heartbeat,
        pause_reading: Callable[[ShardKey], object],
        wake_loop: Callable[[], object],
        clock: Clock = CLOCK,
    ) -> None:
        """`pause_reading` makes a shard's worker wait; `wake_loop` ends the loop's wait."""
        super().__init__(dispatcher=dispatcher, progress=progress, heartbeat=heartbeat, clock=clock)
        self._pool = pool
        self._pause_reading = pause_reading
        self._wake_loop = wake_loop
        self._lock = threading.Lock()
        self._queues: dict[ShardKey, ShardQueue] = {}
        self._ends: list[EndOfReading] = []
        """The ends of shards without any submitted page."""
        self._bytes = 0
        self._most_bytes = _ALL_BYTES + pool.size * 2 * _SHARD_BYTES
        self._error: BaseException | None = None
        self._has_stopped = False
        self._tick_due = 0.0
        self._items: ShardKey | None = None
        """A snapshot's items, delivered now or read next; their table's changes wait meanwhile."""
        self._reserved_until = -math.inf

    @property
    def full(self) -> Set[ShardKey]:
        """See `Delivery`: no shard, or once all have too much, each that has something."""
        if self._bytes < self._most_bytes:
            return frozenset()
        return {queue.shard_key for queue in self._queues.values() if queue.jobs}

    def is_delivering(self, shard_key: ShardKey) -> bool:
        """See `Delivery`."""
        queue = self._queues.get(shard_key)
        return queue is not None and not queue.is_empty

    def has_changes_beside(self, items: ShardKey | None) -> bool:
        """See `Delivery`."""
        return any(queue.jobs for queue in self._queues.values() if queue.shard_key != items)

    def steps(self) -> Sequence[HandlerStep]:
        """See `Delivery`."""
        retries = self._dispatcher.retries.under_way
        return [
            HandlerStep(queue.shard_key, queue.step_since, retry.alive_at if retry else 0.0)
            for queue in self._queues.values()
            if queue.step_since < math.inf
            for retry in (retries.get(queue.shard_key),)
        ]

    # The loop's thread

    def submit(
        self, shard_key: ShardKey, shard: TrackedShard, page: Page, *, then_drain: bool = False
    ) -> None:
        """See `Delivery`."""
        if shard_key not in self._queues:
            self._queues[shard_key] = ShardQueue(shard_key, shard)
        queue = self._queues[shard_key]
        queue.progress.shard = shard  # a table's next snapshot is another one
        with self._lock:
            queue.bytes += len(page.body)
            self._bytes += len(page.body)
        self._add(queue, page)
        if then_drain:
            self._add(queue, partial(self._dispatcher.drain, shard_key))

    def submit_end(self, shard_key: ShardKey, message: ReaderEnded | None) -> None:
        """See `Delivery`."""
        queue = self._queues.get(shard_key)
        if queue is None:
            self._ends.append((shard_key, message))
            return
        if message is not None and self._dispatcher.first_pending(shard_key):
            self._add(queue, partial(self._dispatcher.drain, shard_key))
        queue.ends.append(message)

    def deliver(self) -> Sequence[EndOfReading]:
        """See `Delivery`. Raises the error of a handler's thread."""
        self._tick()
        self.move_positions()
        if self._error is not None:
            raise self._error
        ends = [*self._ends, *self._ends_behind_records()]
        self._ends.clear()
        if not ends and self.full:
            self._clock.sleep(_LOOK_SECONDS)
        return ends

    def _ends_behind_records(self) -> list[EndOfReading]:
        ends: list[EndOfReading] = []
        for queue in [queue for queue in self._queues.values() if queue.ends]:
            if queue.is_empty:
                self.move_positions()
                ends += ((queue.shard_key, message) for message in queue.ends)
                queue.ends.clear()
                # The queue of an incomplete batch is needed until the batch's window ends.
                is_pending = self._dispatcher.first_pending(queue.shard_key) is not None
                if ends[-1][1] is None and not is_pending:
                    del self._queues[queue.shard_key]
        return ends

    def _tick(self) -> None:
        now = self._clock.monotonic()
        if now < self._tick_due:
            return
        self._tick_due = now + _TICK_SECONDS
        self._dispatcher.failure_log.log_repeats_if_due()
        self._progress.log_if_none_matches()
        for queue in self._queues.values():
            if queue.is_empty and self._dispatcher.first_pending(queue.shard_key):
                self._add(queue, partial(self._dispatcher.tick, queue.shard_key))
            if queue.bytes >= _SHARD_BYTES:
                self._pause_reading(queue.shard_key)

    def move_positions(self) -> None:
        """See `Delivery`."""
        self._progress.move([queue.progress for queue in self._queues.values()], self._flush)

    def _flush(self) -> None:
        with self._heartbeat.during(Phase.DELIVERING):
            self._dispatcher.flush()

    def reserve(self, items: ShardKey) -> bool:
        """See `Delivery`: a slow handler of one shard must not delay all others without limit."""
        now = self._clock.monotonic()
        if now >= self._reserved_until + _RESERVE_SECONDS:
            self._items = items
            self._reserved_until = now + _RESERVE_SECONDS
        if self._items is None or now >= self._reserved_until:
            self.release()
            return False
        self._items = items
        if any(queue.is_taken and self._waits_for_items(queue) for queue in self._queues.values()):
            return False
        self._reserved_until = -math.inf
        return True

    def release(self) -> None:
        """See `Delivery`."""
        if self._items is not None and not self.is_delivering(self._items):
            self._items = None
            for queue in self._queues.values():
                if queue.jobs:
                    self._add(queue)

    def drain(self) -> None:
        """See `Delivery`."""
        self._stop()
        self._dispatcher.drain()

    def close(self) -> None:
        """See `Delivery`."""
        try:
            if not self._has_stopped:
                with contextlib.suppress(OutputClosed, HandlerError, Overdue):
                    self._stop()
        finally:
            super().close()

    def _stop(self) -> None:
        """Starts no more records, and waits for those in hand."""
        self._has_stopped = True
        error = self._wait_and_save()
        self._pool.close()
        for queue in self._queues.values():
            if queue.is_taken and queue.in_hand:
                which = which_of([queue.in_hand])
                logger.warning(f"Interrupted: a handler is still processing {which}")
        if error is not None:
            raise error
        self.move_positions()

    @property
    def _is_at_work(self) -> bool:
        return any(queue.is_taken for queue in self._queues.values())

    def _wait_and_save(self) -> BaseException | None:
        """Waits for the records in hand, and saves those that are done: a kill may end the wait.

        Returns the error of a save, after the wait: no handler has less time because of it.
        """
        until = self._clock.monotonic() + self._dispatcher.shutdown.seconds_left
        error: BaseException | None = None
        while self._is_at_work and self._clock.monotonic() < until:
            try:
                if error is None:
                    self.move_positions()
                    self._dispatcher.during_wait()
            except (Exception, Overdue) as failure:
                error = failure
            self._clock.sleep(_LOOK_SECONDS)
        return error

    # The handlers' threads

    def _add(self, queue: ShardQueue, *jobs: Page | Callable[[], object]) -> None:
        with self._lock:
            queue.jobs.extend(jobs)
            is_taken, queue.is_taken = queue.is_taken, True
        if not is_taken:
            self._pool.submit(partial(self._turn, queue))

    def _may_begin(self, queue: ShardQueue) -> bool:
        """True while a shard may start another step."""
        is_over = self._has_stopped or self._error or self._dispatcher.shutdown.requested
        return not (is_over or self._waits_for_items(queue))

    def _waits_for_items(self, queue: ShardQueue) -> bool:
        """True for a table's changes while its items are delivered, or read next."""
        items, shard_key = self._items, queue.shard_key
        if items is None or items == shard_key:
            return False
        return table_of(items.stream) == table_of(shard_key.stream)

    def _turn(self, queue: ShardQueue) -> Iterator[None]:
        """Works for a shard during one turn; yields after each step."""
        queue.step_since = self._clock.monotonic()
        until, is_done = queue.step_since + _TURN_SECONDS, True
        try:
            while is_done and queue.jobs and self._may_begin(queue):
                job = queue.jobs[0]
                if isinstance(job, Page):
                    is_done = yield from self._deliver(queue, job, until)
                else:
                    job()
                queue.step_since = self._clock.monotonic()
                if is_done:
                    queue.jobs.popleft()
                    yield
        except Overdue as error:
            logger.warning(str(error))
        except BaseException as error:
            self._error = self._error or error
        finally:
            self._end_turn(queue)

    def _end_turn(self, queue: ShardQueue) -> None:
        queue.step_since = math.inf
        with self._lock:
            may_go_on = self._may_begin(queue) and not self._progress.is_full
            queue.is_taken = bool(queue.jobs) and may_go_on
        if queue.is_taken:
            self._pool.submit(partial(self._turn, queue))
        else:
            self._wake_loop()

    def _deliver(self, queue: ShardQueue, page: Page, until: float) -> Generator[None, None, bool]:
        """Delivers records of a page until a time; returns True once the page is delivered."""
        if queue.records is None:
            wire_filter = self._progress.wire_filter(queue.shard_key)
            queue.records = self._progress.open(queue.progress, page).masked(wire_filter)
        monotonic = self._clock.monotonic
        while self._may_begin(queue) and monotonic() < until:
            if not queue.progress.is_under_way:
                self._end_page(queue, page)
                return True
            record = next(queue.records)
            if record is not None:
                if not self._begin_record():
                    queue.records = itertools.chain((record,), queue.records)
                    return False
                queue.in_hand = record
                self._dispatcher.deliver(record)
                queue.in_hand, queue.step_since = None, monotonic()
            queue.progress.note(1, () if record is None else (record.event_name,), record is None)
            yield
        return False

    def _begin_record(self) -> bool:
        """Counts a record as started; False where the limit is reached."""
        with self._lock:
            has_room = not self._progress.is_full
            self._progress.begun += has_room
            return has_room

    def _end_page(self, queue: ShardQueue, page: Page) -> None:
        self._dispatcher.page_end(queue.shard_key)
        self._dispatcher.tick(queue.shard_key)
        queue.records = None
        if page.read and not self._progress.is_full:
            queue.progress.end_page()
        with self._lock:
            queue.bytes -= len(page.body)
            self._bytes -= len(page.body)
