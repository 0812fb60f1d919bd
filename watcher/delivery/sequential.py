"""Delivers one record after the other, in the loop's own thread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from watcher.aws.model import ShardKey
from watcher.clock import CLOCK, Clock
from watcher.delivery.dispatcher import Dispatcher
from watcher.delivery.progress import Progress
from watcher.delivery.protocol import EndOfReading, HandlerStep
from watcher.observability.heartbeat import Heartbeat, Phase
from watcher.records.page import RecordPage
from watcher.streams.lineage import TrackedShard
from watcher.streams.messages import Page, ReaderEnded, WireFilter

_TURN_SECONDS = 0.2
"""The time after which delivery returns to the loop: saves and listings can't wait longer."""
_FIRST_TOGETHER = 16
"""The number of records that a handler of pages gets in its first call."""
_MOST_TOGETHER = 1024
"""The largest number of records in one call: about a page."""
_QUICK_SECONDS = 0.02
"""A call that took less is followed by one with twice as many records; a slower one, a quarter."""


class _CurrentPage:
    """The page that is being delivered, and the progress in it."""

    def __init__(
        self,
        shard_key: ShardKey,
        shard: TrackedShard,
        page: Page,
        passed_before: int,
        *,
        then_drain: bool,
    ) -> None:
        self.shard_key = shard_key
        self.shard = shard
        self.page = page
        self.passed_before = passed_before
        """The total of delivered and filtered records before this page."""
        self.then_drain = then_drain
        self.delivered_upto: tuple[RecordPage, int] | Page | None = None
        """The last record delivered or filtered out since the position moved; or the whole page."""


class SequentialDelivery:
    """Delivers one page at a time; see `Delivery`."""

    def __init__(
        self,
        *,
        dispatcher: Dispatcher,
        progress: Progress,
        heartbeat: Heartbeat,
        clock: Clock = CLOCK,
    ) -> None:
        self._dispatcher = dispatcher
        self._shutdown = dispatcher.shutdown
        self._progress = progress
        self._heartbeat = heartbeat
        self._clock = clock
        self._together = _FIRST_TOGETHER
        self._current_page: _CurrentPage | None = None
        self._steps: Iterator[None] = iter(())
        """Delivers the current page; yields at the end of each turn."""
        self._turn_ends = 0.0
        self._undelivered = 0
        self._ends: list[EndOfReading] = []
        # Records delivered one by one that are not in the totals yet: the page and the place of the
        # first of them, the kind of each, and the number that a filter left out.
        self._uncounted = RecordPage(b"", ShardKey("", ""), range(0)), 0
        self._kinds: list[str] = []
        self._filtered = 0

    @property
    def has_room(self) -> bool:
        """See `Delivery`: there is room for one page."""
        return self._current_page is None

    @property
    def is_complete(self) -> bool:
        """See `Delivery`."""
        return self._progress.is_complete

    @property
    def undelivered(self) -> int:
        """See `Delivery`: counts the last page's."""
        return self._undelivered

    def submit(
        self, shard_key: ShardKey, shard: TrackedShard, page: Page, *, then_drain: bool = False
    ) -> None:
        """See `Delivery`."""
        passed = self._progress.passed
        self._current_page = _CurrentPage(shard_key, shard, page, passed, then_drain=then_drain)
        self._undelivered = page.count
        records = self._progress.opened(shard_key, page)
        deliver = self._in_parts if self._dispatcher.takes_pages else self._one_by_one
        self._steps = deliver(records, self._progress.wire_filter(shard_key))

    def submit_end(self, shard_key: ShardKey, message: ReaderEnded | None) -> None:
        """See `Delivery`."""
        self._ends.append((shard_key, message))

    def deliver(self) -> Sequence[EndOfReading]:
        """See `Delivery`."""
        with self._heartbeat.during(Phase.DELIVERING):
            self._dispatcher.tick()
            self._progress.log_if_none_matches()
            if self._current_page is not None:
                self._take_turn(self._current_page)
        if self._current_page is not None or not self._ends:
            return ()
        ends, self._ends = self._ends, []
        return ends

    def is_delivering(self, shard_key: ShardKey) -> bool:
        """See `Delivery`."""
        return self._current_page is not None and self._current_page.shard_key == shard_key

    def has_changes_beside(self, items: ShardKey | None) -> bool:
        """See `Delivery`."""
        return self._current_page is not None and self._current_page.shard_key != items

    def reserve(self, items: ShardKey) -> bool:
        """See `Delivery`."""
        return self._current_page is None

    def release(self) -> None:
        """See `Delivery`: only the current page holds anything back."""

    def steps(self) -> Sequence[HandlerStep]:
        """See `Delivery`: handlers run in the loop's thread alone."""
        return ()

    def drain(self) -> None:
        """See `Delivery`."""
        if self._current_page is not None:
            self._take_turn(self._current_page)
        self._dispatcher.drain()

    def close(self) -> None:
        """See `Delivery`."""
        self._dispatcher.close()

    # The current page

    def _take_turn(self, current: _CurrentPage) -> None:
        """Delivers for one turn.

        After a shutdown request, the rest of the page stays undelivered.
        """
        self._turn_ends = self._clock.monotonic() + _TURN_SECONDS
        is_over = True
        try:
            self._shutdown.interruptible = True
            is_over = next(self._steps, self) is self
            if is_over and (not self._shutdown.requested or self._is_whole(current)):
                self._dispatcher.page_end(current.shard_key)
                if current.page.read and not self._progress.is_complete:
                    current.delivered_upto = current.page
            if is_over and current.then_drain:
                self._dispatcher.drain(current.shard_key)
        finally:
            self._shutdown.interruptible = False
            try:
                self.move_positions()
            finally:
                if is_over:
                    self._current_page = None

    def _done(self, current: _CurrentPage) -> int:
        """Returns the number of the page's records that are delivered, or filtered out here."""
        return self._progress.passed - current.passed_before

    def _is_whole(self, current: _CurrentPage) -> bool:
        return self._done(current) == current.page.count

    def _one_by_one(self, records: RecordPage, wire_filter: WireFilter | None) -> Iterator[None]:
        """Delivers each record separately; yields at the end of each turn.

        This loop takes as long as many a handler: it does only what can't wait until its end.
        """
        deliver, shutdown = self._dispatcher.deliver, self._shutdown
        monotonic, kinds = self._clock.monotonic, self._kinds
        most = self._progress.limit - self._progress.delivered
        self._uncounted = records, 0
        for wire, record in zip(records.wire_records, records.masked(wire_filter), strict=True):
            if len(kinds) >= most or shutdown.requested:
                break
            if record is None:
                self._filtered += 1
            else:
                deliver(record)
                kinds.append(wire.eventName or "")
            if monotonic() >= self._turn_ends:
                yield
                most = self._progress.limit - self._progress.delivered
        self._count()

    def _count(self) -> None:
        """Adds the records delivered one by one to the totals."""
        records, first = self._uncounted
        done = len(self._kinds) + self._filtered
        if done and self._current_page is not None:
            table = self._current_page.shard_key.table
            self._progress.count(table, self._kinds, len(self._kinds), self._filtered)
            self._kinds.clear()
            self._filtered = 0
            self._uncounted = records, first + done
            self._current_page.delivered_upto = records, first + done - 1

    def _in_parts(self, records: RecordPage, wire_filter: WireFilter | None) -> Iterator[None]:
        """Delivers as many records in one call as fit into a turn.

        A slow reader of the handler's output (a pipe) makes the parts small.
        """
        monotonic = self._clock.monotonic
        while records and not self._shutdown.requested:
            part, records = records[: self._together], records[self._together :]
            began = monotonic()
            is_last = self._progress.delivered + len(part) > self._progress.limit
            if is_last or not self._deliver_together(part, wire_filter):
                yield from self._one_by_one(part, wire_filter)
                continue
            factor = 2 if monotonic() - began < _QUICK_SECONDS else 0.25
            self._together = min(max(1, int(self._together * factor)), _MOST_TOGETHER)
            if monotonic() >= self._turn_ends:
                yield

    def _deliver_together(self, part: RecordPage, wire_filter: WireFilter | None) -> bool:
        """Delivers records in one call; False where each has to be delivered separately."""
        current, chosen = self._current_page, part
        if wire_filter is not None:
            try:
                chosen = part.filtered(wire_filter)
            except Exception:  # raised again when its record is delivered
                return False
        if current is None or (chosen and not self._dispatcher.deliver_page(chosen)):
            return False
        is_whole = len(chosen) == current.page.count
        kinds = current.page.kinds if is_whole else None
        each = [wire.eventName or "" for wire in chosen.wire_records] if kinds is None else kinds
        table = current.shard_key.table
        self._progress.count(table, each, len(chosen), len(part) - len(chosen))
        current.delivered_upto = part, len(part) - 1
        return True

    def move_positions(self) -> None:
        """See `Delivery`: behind flushed records, not behind those that handlers buffer."""
        self._count()
        current = self._current_page
        if current is None or current.delivered_upto is None:
            return
        self._dispatcher.flush()
        page, done = current.page, self._done(current)
        if isinstance(current.delivered_upto, Page):
            number, created = page.last_sequence_number, page.last_created
            self._progress.count_left_out(page.left_out)
        else:
            records, place = current.delivered_upto
            change = records.wire_records[place].dynamodb
            number, created = change.SequenceNumber, change.ApproximateCreationDateTime
        self._undelivered = page.count - done
        self._progress.move(current.shard_key, current.shard, number, created)
        current.delivered_upto = None
