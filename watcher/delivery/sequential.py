"""A page's records to the observers, and how far that has come."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from watcher.aws.model import AfterSequence, ShardKey
from watcher.clock import CLOCK, Clock
from watcher.delivery.dispatcher import Dispatcher
from watcher.observability.heartbeat import Heartbeat, Phase
from watcher.observability.watch_stats import Totals
from watcher.records.page import RecordPage
from watcher.runtime.stats import StatsCollector
from watcher.runtime.tail import Tail
from watcher.streams.lineage import TrackedShard
from watcher.streams.messages import Message, Page, Wanted

_TICK_SECONDS = 0.2
# Of records that an observer takes together: so many at first, and at most, and more if it was so
# quick with those before.
_AT_ONCE = 16
_MOST_AT_ONCE = 1024
_QUICK_SECONDS = 0.02


Heard = tuple[ShardKey, Message | None]
"""A shard, and what is said of it; None: it is not being read any more."""


class SequentialDelivery:
    """Hands records over, and moves their shards' positions behind what was delivered."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        figures: StatsCollector,
        totals: Totals,
        wanted: Wanted | None = None,
        max_records: int | None = None,
        clock: Clock = CLOCK,
        pulse: Heartbeat | None = None,
    ) -> None:
        self._dispatcher = dispatcher
        self._figures = figures
        self._totals = totals
        self.left = 0
        """How many records of the last page the position is not behind yet."""
        self._wanted = wanted
        self._tail: Tail | None = None
        self._limit = math.inf if max_records is None else max_records
        self._clock = clock
        self._pulse = pulse or Heartbeat(clock=clock)
        self._at_once = _AT_ONCE
        self._shard: TrackedShard | None = None
        self._page = Page(0, 0, "")
        self._origin = ShardKey("", "")
        self._began = 0  # how many records were counted before the page
        self._passed_over = 0  # how many that a worker has left out of it are counted
        self._tick_due = 0.0
        # What was delivered one by one and is not counted yet: from which place on of which
        # records, of which kinds each was, and how many of them a filter has left out.
        self._uncounted = RecordPage(b"", self._origin, range(0)), 0
        self._kinds: list[str] = []
        self._filtered = 0
        # What was delivered last, or left out by a filter; the page once that is all of it.
        self._behind: tuple[RecordPage, int] | Page | None = None

    @property
    def at_work(self) -> bool:
        """Whether anything is being handed over, beside what the manager itself does."""
        return False

    @property
    def has_items(self) -> bool:
        """Whether a page of a table's items is being handed over."""
        return False

    @property
    def has_changes(self) -> bool:
        """Whether changes wait here, beside what the workers send."""
        return False

    def stands_for(self, origin: ShardKey) -> bool:
        """Whether nothing is at work, nor will be before a page of these items was handed over."""
        return True

    def settle(self, origin: ShardKey) -> None:
        """Let nothing of a page of items wait. Raises as `Dispatcher.deliver`."""
        self._dispatcher.drain(origin)

    def holds(self, origin: ShardKey) -> bool:
        """Whether records of a shard wait here, and what its worker reads has to wait, too."""
        return False

    def standing(self) -> list[tuple[ShardKey, float, float]]:
        """The shards for which a step is at work, beside what the manager itself does.

        Since when (monotonic) that is so, and when it was tried again (0: it was not).
        """
        return []

    def receive(self, receive: Callable[[float], Heard | None], seconds: float) -> Heard | None:
        """What a worker says, or has said, and is to be heard now; `receive` waits for it."""
        return receive(seconds)

    def tick(self) -> None:
        """Time has passed. Raises as `Dispatcher.deliver`."""
        with self._pulse.during(Phase.DELIVERING):
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

    def end_with(self, tail: Tail | None) -> None:
        """Deliver no more than what there was when these last changes were looked for, if any."""
        if tail is None:
            return
        self._tail = tail
        self._limit = min(self._limit, tail.found)

    def deliver(self, stream: str, shard: TrackedShard, page: Page) -> Iterator[None]:
        """Hand a page over; stops a few times a second, for what must not wait for slow observers.

        Once the end has begun, what is `left` of the page stays where it is, and no further page
        of the shard may follow. Raises as `Dispatcher.deliver`; the position is then before the
        record that it failed on.
        """
        shutdown = self._dispatcher.shutdown
        self._shard, self._page = shard, page
        self._origin = origin = ShardKey(stream, shard.id)
        self._began, self._passed_over = self._counted, 0
        self.left = page.count
        self._tick_due = self._clock.monotonic() + _TICK_SECONDS
        deliver = self._in_parts if self._dispatcher.takes_pages else self._one_by_one
        records = RecordPage(page.body, origin, range(page.first, page.last))
        doing = self._pulse.begin(Phase.DELIVERING)
        try:
            shutdown.interruptible = True
            for _ in deliver(records, self._test(origin)):
                shutdown.interruptible = False
                self.move()
                yield
                shutdown.interruptible = True
                self._tick_due = self._clock.monotonic() + _TICK_SECONDS
            if not shutdown.requested or self._done == page.count:
                self._dispatcher.page_end(origin)
                if page.read and not self.is_complete:
                    self._behind = page
        finally:
            shutdown.interruptible = False
            self.move()
            self._pulse.resume(doing)
            self._shard = None

    @property
    def _counted(self) -> int:
        return self._totals.records + self._totals.filtered

    @property
    def _done(self) -> int:
        """How many records of the page are delivered, or left out by a filter here."""
        return self._counted - self._began - self._passed_over

    def _test(self, origin: ShardKey) -> Wanted | None:
        """Whether a record of this shard goes to the observers; None: every one."""
        wanted, tail = self._wanted, self._tail
        if tail is None:
            return wanted
        return lambda wire: tail.is_within(origin, wire) and (wanted is None or wanted(wire))

    def _one_by_one(self, records: RecordPage, wanted: Wanted | None) -> Iterator[None]:
        """Deliver each record by itself; stops where a look around is due.

        In the loop there is only what can't wait until then: it takes as long as many an observer.
        """
        deliver, shutdown = self._dispatcher.deliver, self._dispatcher.shutdown
        monotonic, kinds, most = self._clock.monotonic, self._kinds, self._limit
        most -= self._totals.records
        self._uncounted = records, 0
        for wire, record in zip(records.wires, records.masked(wanted), strict=True):
            if len(kinds) >= most or shutdown.requested:
                break
            if record is None:
                self._filtered += 1
            else:
                deliver(record)
                kinds.append(wire.eventName or "")
            if monotonic() >= self._tick_due:
                yield
                most = self._limit - self._totals.records
        self._count()

    def _count(self) -> None:
        """Bring the totals up to what was delivered one by one."""
        records, first = self._uncounted
        if done := len(self._kinds) + self._filtered:
            self._totals.kinds.update(self._kinds)
            self._totals.records += len(self._kinds)
            self._totals.filtered += self._filtered
            self._kinds.clear()
            self._filtered = 0
            self._uncounted = records, first + done
            self._behind = records, first + done - 1

    def _in_parts(self, records: RecordPage, wanted: Wanted | None) -> Iterator[None]:
        """A shortcut: as many at once as take the observer no longer than a look around may wait.

        A slow reader of what is printed (a pipe's) gets a few at a time.
        """
        monotonic, shutdown = self._clock.monotonic, self._dispatcher.shutdown
        while records and not shutdown.requested:
            part, records = records[: self._at_once], records[self._at_once :]
            began = monotonic()
            if self._totals.records + len(part) > self._limit or not self._together(part, wanted):
                yield from self._one_by_one(part, wanted)
                continue
            self._behind = part, len(part) - 1
            factor = 2 if monotonic() - began < _QUICK_SECONDS else 0.25
            self._at_once = min(max(1, int(self._at_once * factor)), _MOST_AT_ONCE)
            if monotonic() >= self._tick_due:
                yield

    def _together(self, part: RecordPage, wanted: Wanted | None) -> bool:
        """Deliver records together; False where each has to be by itself."""
        chosen = part
        if wanted is not None:
            try:
                chosen = part.filtered(wanted)
            except Exception:  # which is raised again, where its record's turn has come
                return False
        if chosen and not self._dispatcher.deliver_page(chosen):
            return False
        is_whole = len(chosen) == self._page.count
        kinds = self._page.kinds if is_whole else None
        self._totals.kinds.update(kinds or [wire.eventName or "" for wire in chosen.wires])
        self._totals.records += len(chosen)
        self._totals.filtered += len(part) - len(chosen)
        return True

    def move(self) -> None:
        """The position is behind the last record delivered: what has left us, not what waits.

        Raises as `Dispatcher.flush`.
        """
        self._count()
        if self._behind is None or self._shard is None:
            return
        self._dispatcher.flush()
        page, done = self._page, self._done
        if isinstance(self._behind, Page):
            number, created = page.last_sequence_number, page.last_created
            passed_over = page.read - page.count
        else:
            records, place = self._behind
            change = records.wires[place].dynamodb
            number, created = change.SequenceNumber, change.ApproximateCreationDateTime
            passed_over = page.left_out[done - 1] if page.left_out else 0
        self._totals.filtered += passed_over - self._passed_over
        self._passed_over = passed_over
        self.left = page.count - done
        self._shard.position = AfterSequence(number)
        self._figures.moved(self._origin, created, self._totals)
        self._behind = None
