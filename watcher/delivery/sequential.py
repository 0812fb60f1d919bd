"""Delivers one record after the other, in the loop's own thread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from watcher.aws.model import ShardKey
from watcher.clock import CLOCK, Clock
from watcher.delivery.dispatcher import Dispatcher
from watcher.delivery.progress import Progress, ShardProgress
from watcher.delivery.protocol import Delivery, EndOfReading
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


class SequentialDelivery(Delivery):
    """Delivers one page at a time; see `Delivery`."""

    def __init__(
        self,
        *,
        dispatcher: Dispatcher,
        progress: Progress,
        heartbeat: Heartbeat,
        clock: Clock = CLOCK,
    ) -> None:
        super().__init__(dispatcher=dispatcher, progress=progress, heartbeat=heartbeat, clock=clock)
        self._shutdown = dispatcher.shutdown
        self._together = _FIRST_TOGETHER
        self._current: ShardProgress | None = None
        """The shard of the current page, or of the last one."""
        self._page: Page | None = None
        """The current page."""
        self._then_drain = False
        self._steps: Iterator[None] = iter(())
        """Delivers the current page; yields at the end of each turn."""
        self._turn_ends = 0.0
        self._ends: list[EndOfReading] = []
        # Of records delivered one by one that are not noted yet: the kind of each, and the number
        # that a filter left out.
        self._kinds: list[str] = []
        self._filtered = 0

    @property
    def has_room(self) -> bool:
        """See `Delivery`: there is room for one page."""
        return self._page is None

    def submit(
        self, shard_key: ShardKey, shard: TrackedShard, page: Page, *, then_drain: bool = False
    ) -> None:
        """See `Delivery`."""
        self._page, self._then_drain = page, then_drain
        self._current = current = ShardProgress(shard_key, shard)
        records = self._progress.open(current, page)
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
            self._take_turn()
        if self._page is not None or not self._ends:
            return ()
        ends, self._ends = self._ends, []
        return ends

    def is_delivering(self, shard_key: ShardKey) -> bool:
        """See `Delivery`."""
        return self._shard_key == shard_key

    def has_changes_beside(self, items: ShardKey | None) -> bool:
        """See `Delivery`."""
        return self._shard_key not in (None, items)

    @property
    def _shard_key(self) -> ShardKey | None:
        """The shard of the current page."""
        return None if self._page is None or self._current is None else self._current.shard_key

    def reserve(self, items: ShardKey) -> bool:
        """See `Delivery`."""
        return self._page is None

    def drain(self) -> None:
        """See `Delivery`."""
        self._take_turn()
        self._dispatcher.drain()

    # The current page

    def _take_turn(self) -> None:
        """Delivers for one turn.

        After a shutdown request, the rest of the page stays undelivered.
        """
        current, page = self._current, self._page
        if current is None or page is None:
            return
        self._turn_ends = self._clock.monotonic() + _TURN_SECONDS
        is_over = True
        try:
            self._shutdown.interruptible = True
            is_over = next(self._steps, self) is self
            if is_over and (not self._shutdown.requested or not current.is_under_way):
                self._dispatcher.page_end(current.shard_key)
                if page.read and not self._progress.is_full:
                    current.end_page()
            if is_over and self._then_drain:
                self._dispatcher.drain(current.shard_key)
        finally:
            self._shutdown.interruptible = False
            try:
                self.move_positions()
            finally:
                if is_over:
                    self._page = None

    def _one_by_one(self, records: RecordPage, wire_filter: WireFilter | None) -> Iterator[None]:
        """Delivers each record separately; yields at the end of each turn.

        This loop takes as long as many a handler: it does only what can't wait until its end.
        """
        deliver, shutdown = self._dispatcher.deliver, self._shutdown
        monotonic, kinds = self._clock.monotonic, self._kinds
        most = self._progress.limit - self._progress.begun
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
                most = self._progress.limit - self._progress.begun
        self._note()

    def _note(self) -> None:
        """Notes the records delivered one by one."""
        done = len(self._kinds) + self._filtered
        if done and self._current is not None:
            self._current.note(done, self._kinds, self._filtered)
            self._progress.begun += len(self._kinds)
            self._kinds.clear()
            self._filtered = 0

    def _in_parts(self, records: RecordPage, wire_filter: WireFilter | None) -> Iterator[None]:
        """Delivers as many records in one call as fit into a turn.

        A slow reader of the handler's output (a pipe) makes the parts small.
        """
        monotonic = self._clock.monotonic
        while records and not self._shutdown.requested:
            part, records = records[: self._together], records[self._together :]
            began = monotonic()
            is_last = self._progress.begun + len(part) > self._progress.limit
            if is_last or not self._deliver_together(part, wire_filter):
                yield from self._one_by_one(part, wire_filter)
                continue
            factor = 2 if monotonic() - began < _QUICK_SECONDS else 0.25
            self._together = min(max(1, int(self._together * factor)), _MOST_TOGETHER)
            if monotonic() >= self._turn_ends:
                yield

    def _deliver_together(self, part: RecordPage, wire_filter: WireFilter | None) -> bool:
        """Delivers records in one call; False where each has to be delivered separately."""
        current, page, chosen = self._current, self._page, part
        if wire_filter is not None:
            try:
                chosen = part.filtered(wire_filter)
            except Exception:  # raised again when its record is delivered
                return False
        if chosen and not self._dispatcher.deliver_page(chosen):
            return False
        assert current is not None and page is not None
        kinds = page.kinds if len(chosen) == page.count else None
        each = [wire.eventName or "" for wire in chosen.wire_records] if kinds is None else kinds
        self._progress.begun += len(chosen)
        current.note(len(part), each, len(part) - len(chosen))
        return True

    def move_positions(self) -> None:
        """See `Delivery`: behind flushed records, not behind those that handlers buffer."""
        self._note()
        if self._current is not None:
            self._progress.move([self._current], self._dispatcher.flush)
