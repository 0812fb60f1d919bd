"""A page's records to the observers, and how far that has come."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from watcher.clock import CLOCK, Clock
from watcher.delivery.dispatcher import Dispatcher
from watcher.engine.figures import Figures, Totals
from watcher.engine.tail import Tail
from watcher.reading.lineage import Tracked
from watcher.reading.messages import Page
from watcher.record import page as pages
from watcher.record.origin import Origin
from watcher.record.record import Record
from watcher.service.model import AfterSequence

_TICK_SECONDS = 0.2


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
        self._record: Record | None = None  # the last one delivered, or left out by a filter

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
        deliver, wanted = self._dispatcher.deliver, self._wanted
        totals, kinds, monotonic = self._totals, self._totals.kinds, self._clock.monotonic
        ending = self._dispatcher.ending
        self.left = page.last - page.first
        self._end = totals.records + totals.filtered + self.left
        tick = monotonic() + _TICK_SECONDS
        self._shard, origin = shard, Origin(stream, shard.id)
        try:
            ending.at_work = True
            for record in pages.records(page.body, origin, page.first, page.last):
                if ending.has_begun and ending.is_late():
                    return
                if wanted is None or wanted(record):
                    deliver(record)
                    self._record = record
                    kinds[record.event_name] += 1
                    totals.records += 1
                    if totals.records >= self._limit:
                        break
                else:
                    self._record = record
                    totals.filtered += 1
                if monotonic() >= tick:
                    ending.at_work = False
                    self.move()
                    yield
                    ending.at_work = True
                    tick = monotonic() + _TICK_SECONDS
            self._dispatcher.page_end(origin)
        finally:
            ending.at_work = False
            self.move()
            self._shard = None

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
