"""Several shards' records to the observers at once: of each shard one after the other."""

from __future__ import annotations

import contextlib
import logging
import math
import threading
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator
from functools import partial
from queue import SimpleQueue
from typing import Any, Protocol

from watcher.aws.model import AfterSequence, ShardKey
from watcher.delivery.output import OutputClosed
from watcher.delivery.sequential import Heard, SequentialDelivery
from watcher.delivery.shutdown import Overdue
from watcher.errors import HandlerError
from watcher.formatting.text import printable_key
from watcher.observability.heartbeat import Phase
from watcher.records.page import RecordPage
from watcher.records.record import Record
from watcher.runtime.workers import Workers
from watcher.streams.lineage import TrackedShard
from watcher.streams.messages import Finished, Message, Page, Wanted

_Work = Callable[[], Iterator[None]]


class HandlerPool(Protocol):
    """What works: threads, or what the simulation has in their place."""

    count: int
    """How many there are."""

    def take(self, work: _Work) -> None:
        """Have one of them go through this once it is free; what came first is begun first."""

    def close(self) -> None:
        """Nothing more comes."""


class ThreadHandlerPool:
    """Up to so many threads, begun as they are needed; they keep no program from its end."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._works: SimpleQueue[_Work | None] = SimpleQueue()
        self._begun = 0
        self._is_open = True
        self._lock = threading.Lock()

    def take(self, work: _Work) -> None:
        """See `HandlerPool`."""
        with self._lock:
            if not self._is_open:
                return
            self._works.put(work)
            if self._begun < self.count:
                self._begun += 1
                threading.Thread(target=self._run, name="watcher handler", daemon=True).start()

    def close(self) -> None:
        """See `HandlerPool`."""
        with self._lock:
            self._is_open = False
            for _ in range(self._begun):
                self._works.put(None)

    def _run(self) -> None:
        while (work := self._works.get()) is not None:
            for _ in work():
                pass


logger = logging.getLogger("watcher")

# So long an observer may be at work on one record before that is said.
_LONG_SECONDS = 10.0


class PartialPage:
    """A page that is being handed over."""

    def __init__(self, page: Page, records: RecordPage, wanted: Wanted | None) -> None:
        self.page = page
        self.wires = records.wires
        self.records = enumerate(records.masked(wanted))
        self.passed_over = 0
        """How many that a worker has left out of it are counted."""

    def left_out_before(self, index: int) -> int:
        """How many of those are to be counted now."""
        found = self.page.left_out[index] if self.page.left_out else 0
        new, self.passed_over = found - self.passed_over, found
        return new


class ShardQueue:
    """What waits of one shard, and how far it has come."""

    def __init__(self, origin: ShardKey, shard: TrackedShard) -> None:
        self.origin = origin
        self.shard = shard
        self.jobs: deque[Page | Callable[[], object]] = deque()
        self.is_taken = False
        """Whether somebody works for it, or will do so soon."""
        self.page: PartialPage | None = None
        """What is left of the page that is being handed over."""
        self.bytes = 0
        self.left = 0
        """How many records are not handed over."""
        self.last: tuple[str, float | None] | None = None
        """Number and time of the last that was since somebody looked; and of which kinds."""
        self.kinds: Counter[str] = Counter()
        self.filtered = 0
        self.in_hand: tuple[Record, float] | None = None
        """The record that is being handed over, and since when."""
        self.since = math.inf
        """When (monotonic) the step was begun that is at work for it."""
        self.said: Record | None = None
        """The record of which it was said that it takes long."""
        self.later: list[Message | None] = []
        """What its worker has said, and the manager is to hear once all is handed over."""

    @property
    def named(self) -> str:
        """What it is called in a line for people."""
        record = self.in_hand and self.in_hand[0]
        if record is None:
            return self.origin.shard_id
        key = printable_key(record["dynamodb"]["Keys"])
        return f"record {record.sequence_number} ({key}) of {self.origin.shard_id}"

    def say_if_it_stands(self, now: float) -> None:
        """Once for each record that an observer takes long for."""
        record, since = self.in_hand or (None, math.inf)
        if now - since >= _LONG_SECONDS and record is not self.said:
            self.said = record
            logger.warning(
                f"An observer has been at work for {now - since:.0f} s on {self.named}: its "
                "shard stands, the others go on",
                extra={"stream": self.origin.stream, "shard": self.origin.shard_id},
            )


# So much may wait of one shard before it is read no further for a while, and of all of them.
_LANE_BYTES = 4 * 1024 * 1024
_BYTES = 64 * 1024 * 1024
# After so long others have a turn.
_TURN_SECONDS = 0.5
_TICK_SECONDS = 0.2
_LAST_SECONDS = 0.5
# So long nothing more is begun so that items can be read; else that is tried again later.
_STAND_SECONDS = 5.0
_LOOK_SECONDS = 0.02


class ConcurrentDelivery(SequentialDelivery):
    """Hands each shard's records over in their order, those of several shards at once.

    What says that the reading of a shard has ended waits until its last record was handed over:
    so no child of it begins earlier, nor is it begun again where records of it still wait.
    """

    def __init__(
        self,
        hands: HandlerPool,
        workers: Workers,
        moved: Callable[[], object],
        *arguments: Any,
    ) -> None:
        super().__init__(*arguments)
        self._hands = hands
        self._workers = workers
        self._moved = moved
        self._lock = threading.Lock()
        self._lanes: dict[ShardKey, ShardQueue] = {}
        self._begun = 0
        """How many records were begun, of those that count for the limit."""
        self._bytes = 0
        self._error: BaseException | None = None
        self._is_over = False
        self._tick_due = 0.0
        self._items: ShardKey | None = None
        """The items that alone are handed over, or are to be read next."""
        self._is_asked = False
        self._stand_until = -math.inf

    @property
    def at_work(self) -> bool:
        """Whether anything is being handed over."""
        return any(lane.is_taken for lane in self._lanes.values())

    def holds(self, origin: ShardKey) -> bool:
        """See `SequentialDelivery.holds`."""
        lane = self._lanes.get(origin)
        return lane is not None and bool(lane.jobs or lane.is_taken)

    def standing(self) -> list[tuple[ShardKey, float, float]]:
        """See `SequentialDelivery.standing`."""
        tried_at = self._dispatcher.tried_at
        return [
            (lane.origin, lane.since, tried_at.get(lane.origin, 0.0))
            for lane in self._lanes.values()
            if lane.since < math.inf
        ]

    # The manager's thread

    @property
    def has_items(self) -> bool:
        """See `SequentialDelivery.has_items`."""
        return self._items is not None and self.holds(self._items)

    @property
    def has_changes(self) -> bool:
        """See `SequentialDelivery.has_changes`."""
        return any(lane.jobs for lane in self._lanes.values() if lane.origin != self._items)

    def stands_for(self, origin: ShardKey) -> bool:
        """See `SequentialDelivery.stands_for`; what waits goes on once nobody asks for it."""
        now = self._clock.monotonic()
        if now >= self._stand_until + _STAND_SECONDS:
            self._items, self._stand_until = origin, now + _STAND_SECONDS
        # One observer that takes long must not hold all shards up for ever.
        self._is_asked = self._items is not None and now < self._stand_until
        if not self._is_asked or self.at_work:
            return False
        self._items, self._stand_until = origin, -math.inf
        return True

    def settle(self, origin: ShardKey) -> None:
        """See `SequentialDelivery.settle`."""
        self._add(self._lanes[origin], partial(self._dispatcher.drain, origin))

    def _go_on(self) -> None:
        """With what waits for items, if those were handed over, or are not asked for any more."""
        if self._items is not None and not (self._is_asked or self.has_items):
            self._items = None
            for lane in self._lanes.values():
                if lane.jobs:
                    self._add(lane)
        self._is_asked = False

    def deliver(self, stream: str, shard: TrackedShard, page: Page) -> Iterator[None]:
        """Have a page handed over; its shard's position moves as that goes on (`receive`)."""
        lane = self._lane(ShardKey(stream, shard.id), shard)
        with self._lock:
            lane.bytes += len(page.body)
            lane.left += page.count
            self._bytes += len(page.body)
        self._add(lane, page)
        return iter(())

    def receive(self, receive: Callable[[float], Heard | None], seconds: float) -> Heard | None:
        """See `SequentialDelivery.receive`. Raises what handing over has raised."""
        self._look()
        self._go_on()
        if (heard := self._heard_now()) is not None:
            return heard
        if self._bytes >= _BYTES + self._hands.count * 2 * _LANE_BYTES:
            self._clock.sleep(_LOOK_SECONDS)
            return None
        received = receive(seconds)
        if received is None or not isinstance(received[1], Finished | None):
            return received
        origin, message = received
        lane = self._lanes.get(origin)
        if isinstance(message, Finished) and self._dispatcher.pending(origin) and lane:
            self._add(lane, partial(self._dispatcher.drain, origin))
        if lane is None or not (lane.is_taken or lane.jobs or lane.later):
            self._look()
            self._forget(origin, message)
            return received
        lane.later.append(message)
        return None

    def _heard_now(self) -> Heard | None:
        for lane in self._lanes.values():
            if lane.later and not lane.is_taken and not lane.jobs:
                self._collect()
                message = lane.later.pop(0)
                self._forget(lane.origin, message)
                return lane.origin, message
        return None

    def _forget(self, origin: ShardKey, message: Message | None) -> None:
        if message is None:
            self._lanes.pop(origin, None)

    def tick(self) -> None:
        """See `SequentialDelivery.tick`: of each shard in its turn."""
        now = self._clock.monotonic()
        if now < self._tick_due:
            return
        self._tick_due = now + _TICK_SECONDS
        self._dispatcher.log_repeats()
        for lane in self._lanes.values():
            if not self.holds(lane.origin) and self._dispatcher.pending(lane.origin):
                self._add(lane, partial(self._dispatcher.tick, lane.origin))
            if lane.bytes >= _LANE_BYTES:
                self._workers.rest(lane.origin)
            lane.say_if_it_stands(now)

    def rest(self) -> None:
        """See `SequentialDelivery.rest`."""
        self._is_over = True
        shutdown = self._dispatcher.shutdown
        last = min(_LAST_SECONDS, shutdown.timeout / 4)
        self._wait(shutdown.seconds_left - last)
        if self.at_work:  # what is cancelled may need a moment for its end
            self._dispatcher.cancel()
            self._wait(last)
        self._hands.close()
        self.left = sum(lane.left for lane in self._lanes.values())
        self._collect()
        for lane in self._lanes.values():
            if lane.is_taken and lane.in_hand:
                logger.warning(f"Broken off: an observer is still at work on {lane.named}")

    def give_up(self) -> None:
        """See `SequentialDelivery.give_up`."""
        if not self._is_over:
            with contextlib.suppress(OutputClosed, HandlerError, Overdue):
                self.rest()

    def _wait(self, seconds: float) -> None:
        until = self._clock.monotonic() + seconds
        while self.at_work and self._clock.monotonic() < until:
            self._clock.sleep(_LOOK_SECONDS)

    def _lane(self, origin: ShardKey, shard: TrackedShard) -> ShardQueue:
        if origin not in self._lanes:
            self._lanes[origin] = ShardQueue(origin, shard)
        return self._lanes[origin]

    def _look(self) -> None:
        self._collect()
        if self._error is not None:
            raise self._error

    def _collect(self) -> None:
        """Move the positions behind what was handed over. Raises as `Dispatcher.flush`."""
        found = []
        for lane in self._lanes.values():
            with self._lock:
                if lane.last is not None:
                    found.append((lane, lane.last, lane.kinds, lane.filtered))
                    lane.last, lane.kinds, lane.filtered = None, Counter(), 0
        if not found:
            return
        with self._pulse.during(Phase.DELIVERING):
            self._dispatcher.flush()
        for lane, last, kinds, filtered in found:
            self._totals.kinds.update(kinds)
            self._totals.records += kinds.total()
            self._totals.filtered += filtered
            number, created = last
            lane.shard.position = AfterSequence(number)
            self._figures.moved(lane.origin, created, self._totals)
        self._moved()

    # The hands

    def _add(self, lane: ShardQueue, *jobs: Page | Callable[[], object]) -> None:
        with self._lock:
            lane.jobs.extend(jobs)
            is_taken, lane.is_taken = lane.is_taken, True
        if not is_taken:
            self._hands.take(partial(self._turn, lane))

    def _goes_on(self, lane: ShardQueue) -> bool:
        has_turn = self._items in (None, lane.origin)
        is_over = self._is_over or self._error or self._dispatcher.shutdown.requested
        return has_turn and not is_over

    def _turn(self, lane: ShardQueue) -> Iterator[None]:
        """Work for a shard for a while; stops after each step of that."""
        until = self._clock.monotonic() + _TURN_SECONDS
        goes_on = True
        try:
            while goes_on and lane.jobs and self._goes_on(lane):
                job = lane.jobs[0]
                lane.since = self._clock.monotonic()
                if isinstance(job, Page):
                    goes_on = yield from self._hand_over(lane, job, until)
                else:
                    job()
                if goes_on:
                    lane.jobs.popleft()
                    yield
        except Overdue:
            goes_on = False
        except BaseException as error:
            self._error = self._error or error
        finally:
            self._leave(lane)

    def _leave(self, lane: ShardQueue) -> None:
        lane.since = math.inf
        with self._lock:
            lane.is_taken = bool(lane.jobs) and self._goes_on(lane) and not self._is_full()
        if lane.is_taken:
            self._hands.take(partial(self._turn, lane))
        else:
            self._workers.queue.wake()

    def _is_full(self) -> bool:
        return self._begun >= self._limit

    def _hand_over(self, lane: ShardQueue, page: Page, until: float) -> Generator[None, None, bool]:
        """Records of a page, up to a time; answers whether that was all of them."""
        if lane.page is None:
            records = RecordPage(page.body, lane.origin, range(page.first, page.last))
            lane.page = PartialPage(page, records, self._test(lane.origin))
        left, monotonic = lane.page, self._clock.monotonic
        while self._goes_on(lane) and monotonic() < until:
            index, record = next(left.records, (-1, None))
            if index < 0:
                self._end_page(lane, left)
                return True
            if record is not None:
                if not self._counts():
                    return False
                lane.in_hand = record, monotonic()
                lane.since = lane.in_hand[1]
                self._dispatcher.deliver(record)
                lane.in_hand = None
            self._handed_over(lane, left, index, record)
            yield
        return False

    def _counts(self) -> bool:
        """Begin one more of those that are wanted; False where that would be one too many."""
        with self._lock:
            if self._is_full():
                return False
            self._begun += 1
            return True

    def _handed_over(
        self, lane: ShardQueue, left: PartialPage, index: int, record: Record | None
    ) -> None:
        change = left.wires[index].dynamodb
        with self._lock:
            lane.last = change.SequenceNumber, change.ApproximateCreationDateTime
            lane.left -= 1
            lane.filtered += left.left_out_before(index)
            if record is None:
                lane.filtered += 1
            else:
                lane.kinds[record.event_name] += 1

    def _end_page(self, lane: ShardQueue, left: PartialPage) -> None:
        self._dispatcher.page_end(lane.origin)
        self._dispatcher.tick(lane.origin)
        page, lane.page = left.page, None
        with self._lock:
            if page.read and not self._is_full():
                lane.last = page.last_sequence_number, page.last_created
                lane.filtered += left.left_out_before(-1)
            lane.bytes -= len(page.body)
            self._bytes -= len(page.body)
