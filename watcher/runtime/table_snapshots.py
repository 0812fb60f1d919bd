"""Decides which stream's items are read next, in turn with the shards' changes."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable

from watcher.aws.model import ShardKey
from watcher.clock import CLOCK, Clock
from watcher.delivery.protocol import Delivery
from watcher.formatting.text import counted
from watcher.pull.table_snapshot import TableSnapshot
from watcher.runtime.watched_stream import WatchedStream
from watcher.streams.messages import Page

logger = logging.getLogger("watcher")


class TableSnapshots:
    """Reads one page of items after the other; changes get as much time as the items took."""

    def __init__(self, clock: Clock = CLOCK) -> None:
        self._clock = clock
        self._items: ShardKey | None = None
        """The items that were read last."""
        self._page_began = self._page_ended = 0.0
        """The times between which the last page was read and delivered; 0: it is not delivered."""
        self._is_changes_turn = False
        """True from a page of items on, until changes have had as much time as that took."""
        self._wait = 0.0
        """The seconds of their turn that are left."""
        self._has_changes: bool | None = False
        """True if the loop's last `receive` returned a message; None: none since the last page."""

    def note_changes(self, received: bool) -> None:
        """Notes whether the loop has just received a message."""
        self._has_changes = received

    def next(
        self, streams: Iterable[WatchedStream], delivery: Delivery
    ) -> tuple[TableSnapshot, Page] | None:
        """Reads a page of items, if one is due and no handler is at work.

        Raises StreamError where the first read of a stream's items is refused.
        """
        self._wait = math.inf
        if self._items is not None and delivery.is_delivering(self._items):
            return None
        now = self._clock.monotonic()
        if self._is_changes_turn and self._give_changes_time(now, delivery):
            delivery.release()
            return None
        self._is_changes_turn = False
        for stream in streams:
            snapshot = stream.snapshot
            if snapshot is None or not stream.snapshot_is_due or now < snapshot.due_at:
                continue
            if not delivery.reserve(snapshot.shard_key):
                return None
            self._page_began, self._page_ended = now, 0.0
            if (page := self._read(stream, snapshot)) is not None:
                return snapshot, page
            break
        delivery.release()
        return None

    def _give_changes_time(self, now: float, delivery: Delivery) -> bool:
        """Returns True while it is the changes' turn, as long as the last page of items took."""
        if self._has_changes is None:
            self._wait = 0.0
            return True
        are_waiting = delivery.has_changes_beside(self._items)
        if not (self._has_changes or are_waiting):
            return False
        self._page_ended = self._page_ended or now
        remaining = 2 * self._page_ended - self._page_began - now
        if remaining <= 0:
            return False
        self._wait = remaining if are_waiting else 0.0
        return True

    def _read(self, stream: WatchedStream, snapshot: TableSnapshot) -> Page | None:
        page = snapshot.read(has_ended=stream.coordinator.has_ended)
        if snapshot.is_done:
            stream.end_scan()
        if page is None:
            return None
        self._is_changes_turn, self._wait = True, 0.0
        self._items, self._has_changes = snapshot.shard_key, None
        if snapshot.is_done:
            count = counted(snapshot.items, "item")
            logger.info(f"Snapshot of {stream.table}: {count}, then changes alone")
        return page

    def wait_seconds(self, seconds: float) -> float:
        """Returns how long the loop may wait for messages."""
        return min(seconds, self._wait) if self._is_changes_turn else seconds
