"""A page's records to the observers, and how far that has come."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from watcher.clock import CLOCK, Clock
from watcher.delivery.dispatcher import Dispatcher
from watcher.engine.figures import Figures, Totals
from watcher.engine.tail import Tail
from watcher.reading.lineage import Tracked
from watcher.reading.messages import Message, Page
from watcher.record.origin import Origin
from watcher.record.page import RecordPage
from watcher.record.record import Record
from watcher.service.model import AfterSequence

_TICK_SECONDS = 0.2
# Of records that an observer takes together: so many at first, and at most, and more if it was so
# quick with those before.
_AT_ONCE = 16
_MOST_AT_ONCE = 1024
_QUICK_SECONDS = 0.02


Heard = tuple[Origin, Message | None]
"""A shard, and what is said of it; None: it is not being read any more."""


class Handover:
    """Hands records over, and moves their shards' positions behind what was delivered."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        figures: Figures,
        totals: Totals,
        wanted: Callable[[Record], bool] | None = None,
        max_records: int | None = None,
        clock: Clock = CLOCK,
    ) -> None:
        self._dispatcher = dispatcher
        self._figures = figures
        self._totals = totals
        self.left = 0
        """How many records of the last page the position is not behind yet."""
        self._end = 0
        self._wanted = wanted
        self._limit = math.inf if max_records is None else max_records
        self._clock = clock
        self._shard: Tracked | None = None
        self._at_once = _AT_ONCE
        self._record: Record | None = None  # the last one delivered, or left out by a filter

    @property
    def at_work(self) -> bool:
        """Whether anything is being handed over, beside what the manager itself does."""
        return False

    def receive(self, receive: Callable[[float], Heard | None], seconds: float) -> Heard | None:
        """What a worker says, or has said, and is to be heard now; `receive` waits for it."""
        return receive(seconds)

    def tick(self) -> None:
        """Time has passed. Raises as `Dispatcher.deliver`."""
        self._dispatcher.tick()

    def rest(self) -> None:
        """Nothing more is begun; let what is at work come to its end, as long as there is time.

        Raises as `Dispatcher.flush`.
        """

    def give_up(self) -> None:
        """The same, at the end of a watch that may have failed: raises nothing."""

    @property
    def is_complete(self) -> bool:
        """Whether as many records were delivered as were asked for."""
        return self._totals.records >= self._limit

    def end_with(self, tail: Tail) -> None:
        """Deliver no more than what there was when these last changes were looked for."""
        self._wanted = _both(tail.is_within, self._wanted)
        self._limit = min(self._limit, tail.found)

    def deliver(self, stream: str, shard: Tracked, page: Page) -> Iterator[None]:
        """Hand a page over; stops a few times a second, for what must not wait for slow observers.

        When the end is late, what is `left` of the page stays where it is, and no further page of
        the shard may follow. Raises as `Dispatcher.deliver`; the position is then before the record
        that it failed on.
        """
        monotonic, ending = self._clock.monotonic, self._dispatcher.ending
        self.left = page.count
        self._end = self._totals.records + self._totals.filtered + self.left
        tick = monotonic() + _TICK_SECONDS
        self._shard, origin = shard, Origin(stream, shard.id)
        deliver = self._in_parts if self._dispatcher.takes_pages else self._one_by_one
        try:
            ending.at_work = True
            for _ in deliver(RecordPage(page.body, origin, range(page.first, page.last))):
                if monotonic() >= tick:
                    ending.at_work = False
                    self.move()
                    yield
                    ending.at_work = True
                    tick = monotonic() + _TICK_SECONDS
            if not self._is_late():
                self._dispatcher.page_end(origin)
        finally:
            ending.at_work = False
            self.move()
            self._shard = None

    def _is_late(self) -> bool:
        ending = self._dispatcher.ending
        return ending.has_begun and ending.is_late()

    def _one_by_one(self, records: RecordPage) -> Iterator[None]:
        """Deliver each record by itself; stops after each."""
        deliver, wanted, totals = self._dispatcher.deliver, self._wanted, self._totals
        ending, kinds, limit = self._dispatcher.ending, totals.kinds, self._limit
        for record in records:
            if totals.records >= limit or (ending.has_begun and ending.is_late()):
                return
            if wanted is None or wanted(record):
                deliver(record)
                kinds[record.event_name] += 1
                totals.records += 1
            else:
                totals.filtered += 1
            self._record = record
            yield

    def _in_parts(self, records: RecordPage) -> Iterator[None]:
        """A shortcut: as many at once as take the observer no longer than a look around may wait.

        A slow reader of what is printed (a pipe's) gets a few at a time.
        """
        monotonic, totals = self._clock.monotonic, self._totals
        while records and not self._is_late():
            part, records = records[: self._at_once], records[self._at_once :]
            began = monotonic()
            too_many = totals.records + len(part) > self._limit
            if too_many or self._wanted is not None or not self._dispatcher.deliver_page(part):
                yield from self._one_by_one(part)
                continue
            totals.records += len(part)
            totals.kinds.update(wire.eventName or "" for wire in part.wires)
            self._record = part.last
            factor = 2 if monotonic() - began < _QUICK_SECONDS else 0.25
            self._at_once = min(max(1, int(self._at_once * factor)), _MOST_AT_ONCE)
            yield

    def move(self) -> None:
        """The position is behind the last record delivered: what has left us, not what waits.

        Raises as `Dispatcher.flush`.
        """
        if self._record is not None and self._shard is not None:
            self._dispatcher.flush()
            self._shard.position = AfterSequence(self._record.sequence_number)
            self._figures.moved(self._record, self._totals)
            self.left = self._end - self._totals.records - self._totals.filtered
            self._record = None


def _both(
    first: Callable[[Record], bool], second: Callable[[Record], bool] | None
) -> Callable[[Record], bool]:
    return lambda record: first(record) and (second is None or second(record))
