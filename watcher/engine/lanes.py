"""Several shards' records to the observers at once: of each shard one after the other."""

from __future__ import annotations

import contextlib
import logging
import math
import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import Any

from watcher.delivery.ending import Overdue
from watcher.delivery.stdout import OutputClosed
from watcher.engine.handover import Handover, Heard
from watcher.engine.hands import Hands
from watcher.engine.lane import Lane, PageLeft
from watcher.engine.pulse import Doing
from watcher.engine.workers import Workers
from watcher.errors import ObserverError
from watcher.reading.lineage import Tracked
from watcher.reading.messages import Finished, Message, Page
from watcher.record.origin import Origin
from watcher.record.page import RecordPage
from watcher.record.record import Record
from watcher.service.model import AfterSequence

logger = logging.getLogger("watcher")

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


class Lanes(Handover):
    """Hands each shard's records over in their order, those of several shards at once.

    What says that the reading of a shard has ended waits until its last record was handed over:
    so no child of it begins earlier, nor is it begun again where records of it still wait.
    """

    def __init__(
        self,
        hands: Hands,
        workers: Workers,
        moved: Callable[[], object],
        *arguments: Any,
    ) -> None:
        super().__init__(*arguments)
        self._hands = hands
        self._workers = workers
        self._moved = moved
        self._lock = threading.Lock()
        self._lanes: dict[Origin, Lane] = {}
        self._begun = 0
        """How many records were begun, of those that count for the limit."""
        self._bytes = 0
        self._error: BaseException | None = None
        self._is_over = False
        self._tick_due = 0.0
        self._items: Origin | None = None
        """The items that alone are handed over, or are to be read next."""
        self._is_asked = False
        self._stand_until = -math.inf

    @property
    def at_work(self) -> bool:
        """Whether anything is being handed over."""
        return any(lane.is_taken for lane in self._lanes.values())

    def holds(self, origin: Origin) -> bool:
        """See `Handover.holds`."""
        lane = self._lanes.get(origin)
        return lane is not None and bool(lane.jobs or lane.is_taken)

    def standing(self) -> list[tuple[Origin, float, float]]:
        """See `Handover.standing`."""
        tried_at = self._dispatcher.tried_at
        return [
            (lane.origin, lane.since, tried_at.get(lane.origin, 0.0))
            for lane in self._lanes.values()
            if lane.since < math.inf
        ]

    # The manager's thread

    @property
    def has_items(self) -> bool:
        """See `Handover.has_items`."""
        return self._items is not None and self.holds(self._items)

    @property
    def has_changes(self) -> bool:
        """See `Handover.has_changes`."""
        return any(lane.jobs for lane in self._lanes.values() if lane.origin != self._items)

    def stands_for(self, origin: Origin) -> bool:
        """See `Handover.stands_for`; what waits goes on once nobody asks for it any more."""
        now = self._clock.monotonic()
        if now >= self._stand_until + _STAND_SECONDS:
            self._items, self._stand_until = origin, now + _STAND_SECONDS
        # One observer that takes long must not hold all shards up for ever.
        self._is_asked = self._items is not None and now < self._stand_until
        if not self._is_asked or self.at_work:
            return False
        self._items, self._stand_until = origin, -math.inf
        return True

    def settle(self, origin: Origin) -> None:
        """See `Handover.settle`."""
        self._add(self._lanes[origin], partial(self._dispatcher.settle, origin))

    def _go_on(self) -> None:
        """With what waits for items, if those were handed over, or are not asked for any more."""
        if self._items is not None and not (self._is_asked or self.has_items):
            self._items = None
            for lane in self._lanes.values():
                if lane.jobs:
                    self._add(lane)
        self._is_asked = False

    def deliver(self, stream: str, shard: Tracked, page: Page) -> Iterator[None]:
        """Have a page handed over; its shard's position moves as that goes on (`receive`)."""
        lane = self._lane(Origin(stream, shard.id), shard)
        with self._lock:
            lane.bytes += len(page.body)
            lane.left += page.count
            self._bytes += len(page.body)
        self._add(lane, page)
        return iter(())

    def receive(self, receive: Callable[[float], Heard | None], seconds: float) -> Heard | None:
        """See `Handover.receive`. Raises what handing over has raised."""
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
        if isinstance(message, Finished) and self._dispatcher.unsettled(origin) and lane:
            self._add(lane, partial(self._dispatcher.settle, origin))
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

    def _forget(self, origin: Origin, message: Message | None) -> None:
        if message is None:
            self._lanes.pop(origin, None)

    def tick(self) -> None:
        """See `Handover.tick`: of each shard in its turn."""
        now = self._clock.monotonic()
        if now < self._tick_due:
            return
        self._tick_due = now + _TICK_SECONDS
        self._dispatcher.tell()
        for lane in self._lanes.values():
            if not self.holds(lane.origin) and self._dispatcher.unsettled(lane.origin):
                self._add(lane, partial(self._dispatcher.tick, lane.origin))
            if lane.bytes >= _LANE_BYTES:
                self._workers.rest(lane.origin)
            lane.say_if_it_stands(now)

    def rest(self) -> None:
        """See `Handover.rest`."""
        self._is_over = True
        ending = self._dispatcher.ending
        last = min(_LAST_SECONDS, ending.timeout / 4)
        self._wait(ending.left - last)
        if self.at_work:  # what is cancelled may need a moment for its end
            self._dispatcher.break_off()
            self._wait(last)
        self._hands.close()
        self.left = sum(lane.left for lane in self._lanes.values())
        self._collect()
        for lane in self._lanes.values():
            if lane.is_taken and lane.in_hand:
                logger.warning(f"Broken off: an observer is still at work on {lane.named}")

    def give_up(self) -> None:
        """See `Handover.give_up`."""
        if not self._is_over:
            with contextlib.suppress(OutputClosed, ObserverError, Overdue):
                self.rest()

    def _wait(self, seconds: float) -> None:
        until = self._clock.monotonic() + seconds
        while self.at_work and self._clock.monotonic() < until:
            self._clock.sleep(_LOOK_SECONDS)

    def _lane(self, origin: Origin, shard: Tracked) -> Lane:
        if origin not in self._lanes:
            self._lanes[origin] = Lane(origin, shard)
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
        with self._pulse.during(Doing.DELIVERING):
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

    def _add(self, lane: Lane, *jobs: Page | Callable[[], object]) -> None:
        with self._lock:
            lane.jobs.extend(jobs)
            is_taken, lane.is_taken = lane.is_taken, True
        if not is_taken:
            self._hands.take(partial(self._turn, lane))

    def _goes_on(self, lane: Lane) -> bool:
        has_turn = self._items in (None, lane.origin)
        is_over = self._is_over or self._error or self._dispatcher.ending.has_begun
        return has_turn and not is_over

    def _turn(self, lane: Lane) -> Iterator[None]:
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

    def _leave(self, lane: Lane) -> None:
        lane.since = math.inf
        with self._lock:
            lane.is_taken = bool(lane.jobs) and self._goes_on(lane) and not self._is_full()
        if lane.is_taken:
            self._hands.take(partial(self._turn, lane))
        else:
            self._workers.queue.wake()

    def _is_full(self) -> bool:
        return self._begun >= self._limit

    def _hand_over(self, lane: Lane, page: Page, until: float) -> Generator[None, None, bool]:
        """Records of a page, up to a time; answers whether that was all of them."""
        if lane.page is None:
            records = RecordPage(page.body, lane.origin, range(page.first, page.last))
            lane.page = PageLeft(page, records, self._test(lane.origin))
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

    def _handed_over(self, lane: Lane, left: PageLeft, index: int, record: Record | None) -> None:
        change = left.wires[index].dynamodb
        with self._lock:
            lane.last = change.SequenceNumber, change.ApproximateCreationDateTime
            lane.left -= 1
            lane.filtered += left.left_out_before(index)
            if record is None:
                lane.filtered += 1
            else:
                lane.kinds[record.event_name] += 1

    def _end_page(self, lane: Lane, left: PageLeft) -> None:
        self._dispatcher.page_end(lane.origin)
        self._dispatcher.tick(lane.origin)
        page, lane.page = left.page, None
        with self._lock:
            if page.read and not self._is_full():
                lane.last = page.last_sequence_number, page.last_created
                lane.filtered += left.left_out_before(-1)
            lane.bytes -= len(page.body)
            self._bytes -= len(page.body)
