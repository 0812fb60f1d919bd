"""Delivers one record after the other, in the loop's own thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence, Set
from typing import NamedTuple

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


class _Waiting(NamedTuple):
    """A page of a shard that is being delivered, or waits for its next turn."""

    progress: ShardProgress
    page: Page
    steps: Iterator[None]
    """Delivers the page; yields at the end of each turn."""
    then_drain: bool
    """True for a table's items: all of them come before the next change."""


class SequentialDelivery(Delivery):
    """Delivers one page of a shard at a time, those of several shards in turn; see `Delivery`."""

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
        self._waiting: deque[_Waiting] = deque()
        """The pages that are not delivered yet, at most one of each shard; the next one first."""
        self._current: ShardProgress | None = None
        """The shard whose turn it is, or was last."""
        self._turn_ends = 0.0
        self._ends: list[EndOfReading] = []
        # Of records delivered one by one that are not noted yet: the kind of each, and the number
        # that a filter left out.
        self._kinds: list[str] = []
        self._filtered = 0

    @property
    def full(self) -> Set[ShardKey]:
        """See `Delivery`: each shard has room for one page."""
        return {waiting.progress.shard_key for waiting in self._waiting}

    def submit(
        self, shard_key: ShardKey, shard: TrackedShard, page: Page, *, then_drain: bool = False
    ) -> None:
        """See `Delivery`."""
        progress = ShardProgress(shard_key, shard)
        waiting = _Waiting(progress, page, self._steps(progress, page), then_drain)
        if then_drain:
            self._waiting.appendleft(waiting)
        else:
            self._waiting.append(waiting)

    def submit_end(self, shard_key: ShardKey, message: ReaderEnded | None) -> None:
        """See `Delivery`."""
        self._ends.append((shard_key, message))

    def deliver(self) -> Sequence[EndOfReading]:
        """See `Delivery`."""
        with self._heartbeat.during(Phase.DELIVERING):
            self._dispatcher.tick()
            self._progress.log_if_none_matches()
            self._take_turn()
        if not self._ends:
            return ()
        full = self.full
        ends = [end for end in self._ends if end[0] not in full]
        self._ends = [end for end in self._ends if end[0] in full]
        return ends

    def is_delivering(self, shard_key: ShardKey) -> bool:
        """See `Delivery`."""
        return shard_key in self.full

    def has_changes_beside(self, items: ShardKey | None) -> bool:
        """See `Delivery`."""
        return bool(self.full - {items})

    def reserve(self, items: ShardKey) -> bool:
        """See `Delivery`: between two turns no handler is at work."""
        return True

    def drain(self) -> None:
        """See `Delivery`."""
        self._take_turn()
        self._dispatcher.drain()

    # A turn

    def _take_turn(self) -> None:
        """Delivers records of the next page for one turn.

        After a shutdown request, the rest of the page stays undelivered.
        """
        if not self._waiting:
            return
        progress, page, steps, then_drain = self._waiting[0]
        self._current = progress
        self._turn_ends = self._clock.monotonic() + _TURN_SECONDS
        is_over = True
        try:
            self._shutdown.interruptible = True
            is_over = next(steps, self) is self
            if is_over and (not self._shutdown.requested or not progress.is_under_way):
                self._dispatcher.page_end(progress.shard_key)
                if page.read and not self._progress.is_full:
                    progress.end_page()
            if is_over and then_drain:
                self._dispatcher.drain(progress.shard_key)
        finally:
            self._shutdown.interruptible = False
            try:
                self.move_positions()
            finally:
                if is_over:
                    self._waiting.popleft()
                elif not then_drain:
                    self._waiting.rotate(-1)

    def _steps(self, progress: ShardProgress, page: Page) -> Iterator[None]:
        """Delivers a page; yields at the end of each turn."""
        records = self._progress.open(progress, page)
        wire_filter = self._progress.wire_filter(progress.shard_key)
        if self._dispatcher.takes_pages:
            yield from self._in_parts(page, records, wire_filter)
        else:
            yield from self._one_by_one(records, wire_filter)

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

    def _in_parts(
        self, page: Page, records: RecordPage, wire_filter: WireFilter | None
    ) -> Iterator[None]:
        """Delivers as many records in one call as fit into a turn.

        A slow reader of the handler's output (a pipe) makes the parts small.
        """
        monotonic = self._clock.monotonic
        while records and not self._shutdown.requested:
            part, records = records[: self._together], records[self._together :]
            began = monotonic()
            is_last = self._progress.begun + len(part) > self._progress.limit
            if is_last or not self._deliver_together(page, part, wire_filter):
                yield from self._one_by_one(part, wire_filter)
                continue
            factor = 2 if monotonic() - began < _QUICK_SECONDS else 0.25
            self._together = min(max(1, int(self._together * factor)), _MOST_TOGETHER)
            if monotonic() >= self._turn_ends:
                yield

    def _deliver_together(
        self, page: Page, part: RecordPage, wire_filter: WireFilter | None
    ) -> bool:
        """Delivers records in one call; False where each has to be delivered separately."""
        current, chosen = self._current, part
        if wire_filter is not None:
            try:
                chosen = part.filtered(wire_filter)
            except Exception:  # raised again when its record is delivered
                return False
        if chosen and not self._dispatcher.deliver_page(chosen):
            return False
        assert current is not None
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
