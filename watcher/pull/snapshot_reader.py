"""Pulls a table's items too: one page of them in turn with the changes made meanwhile."""

from __future__ import annotations

import logging
import math
from collections import deque

from watcher.aws.model import AfterSequence, Position, Service
from watcher.aws.tables import ReadPace
from watcher.call_pool import CallPool
from watcher.clock import CLOCK, Clock
from watcher.errors import TransientError
from watcher.pull.merged_shards import MergedShards
from watcher.pull.shard_pool import DEFAULTS, PullOptions
from watcher.pull.table_snapshot import Items, TableSnapshot
from watcher.records import page as pages
from watcher.records.record import Record
from watcher.records.redaction import Redaction
from watcher.retry import Backoff, worth_logging
from watcher.streams.checkpoint_format import Token, TokenSnapshot
from watcher.streams.losses import Losses

_ITEMS_BACKOFF = Backoff(first_seconds=1.0, longest_seconds=30.0)
"""The delays between attempts at a page of a snapshot's items."""
_CHANGES_BETWEEN_ITEMS = 1_000
"""The largest number of changes between two pages of a snapshot's items: neither starves."""

logger = logging.getLogger("watcher")


class SnapshotReader(MergedShards):
    """A reader that keeps the rule of `table_snapshot`, and resumes from its token.

    With `only_restart` it delivers the items only where the token is too old to resume from.
    """

    def __init__(
        self,
        service: Service,
        arn: str,
        start: Position | Token,
        *,
        items: Items,
        only_restart: bool = False,
        redaction: Redaction | None = None,
        losses: Losses,
        calls: CallPool,
        clock: Clock = CLOCK,
        options: PullOptions = DEFAULTS,
    ) -> None:
        super().__init__(
            service, arn, start, losses=losses, calls=calls, clock=clock, options=options
        )
        self._stored = stored = start.snapshot if isinstance(start, Token) else None
        self._is_unwanted = only_restart and not self._restarts_snapshot
        if self._is_unwanted:
            stored = TokenSnapshot(done=True)
        elif self._restarts_snapshot:
            stored = None
        pace = ReadPace(options.read_limit, clock)
        self._items = TableSnapshot(
            arn, items, stored, clock, redaction=redaction, pace=pace, calls=calls
        )
        self._item_records: deque[Record] = deque()
        self._changes_left = 0
        self._failures = 0
        self._retry_at = -math.inf

    def start_reads(self, *, at_once: bool = False) -> None:
        """See `MergedShards`; while items are to come, `poll` decides what is next."""
        if self._items.is_done:
            super().start_reads(at_once=at_once)

    def poll(self, *, at_once: bool = False) -> float | None:
        """See `MergedShards`; an item comes before all changes. Raises StreamError."""
        if not self._item_records and self._changes_left > 0:
            if (found := super().poll()) is not None:
                return found
            self._changes_left = 0
        if not self._item_records and self._is_items_turn():
            self._read_items()
        return -math.inf if self._item_records else super().poll(at_once=at_once)

    def pop_buffered(self) -> Record:
        """See `MergedShards`."""
        if not self._item_records:
            self._changes_left -= 1
            return super().pop_buffered()
        record = self._item_records.popleft()
        self._items.shard.position = AfterSequence(record.sequence_number)
        return record

    @property
    def next_at(self) -> float | None:
        """See `MergedShards`."""
        return -math.inf if self._item_records else super().next_at

    @property
    def is_ready(self) -> bool:
        """See `MergedShards`; also True for a buffered item."""
        may_take_changes = self._items.is_done or self._changes_left > 0
        return bool(self._item_records) or (may_take_changes and super().is_ready)

    @property
    def token(self) -> Token:
        """See `MergedShards`."""
        token = super().token
        token.snapshot = self._stored if self._is_unwanted else self._items.stored()
        return token

    def _is_items_turn(self) -> bool:
        due = max(self._retry_at, self._items.due_at)
        if self._items.is_done or self._clock.monotonic() < due:
            return False
        return not self._pool.coordinator.lineage.awaits_latest

    def _read_items(self) -> None:
        try:
            page = self._items.read()
        except TransientError as error:
            self._failures += 1
            self._retry_at = self._clock.monotonic() + _ITEMS_BACKOFF.after(self._failures)
            if worth_logging(self._failures):
                text = f"Can't read the items of {self.listing.table}, trying again: {error}"
                logger.warning(text, extra={"stream": self.arn})
            return
        self._failures, self._changes_left = 0, _CHANGES_BETWEEN_ITEMS
        self._item_records.extend(pages.records(page.body, self._items.shard_key))
