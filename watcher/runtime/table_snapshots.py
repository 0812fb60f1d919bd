"""Which stream's items are read next, in turn with what the shards give."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable

from watcher.aws.model import ShardKey
from watcher.clock import CLOCK, Clock
from watcher.delivery.protocol import Delivery
from watcher.errors import ServiceError, StreamError
from watcher.formatting.text import counted
from watcher.pull.table_snapshot import TableSnapshot
from watcher.retry import backoff, worth_logging
from watcher.runtime.timing import SnapshotTiming
from watcher.runtime.watched_stream import WatchedStream
from watcher.streams.messages import Page

logger = logging.getLogger("watcher")


class TableSnapshots:
    """Reads one page of items after the other; changes get as much time as items have taken."""

    def __init__(self, clock: Clock = CLOCK, timing: SnapshotTiming | None = None) -> None:
        self._clock = clock
        self._timing = timing or SnapshotTiming()
        self._failures = 0
        self._due = 0.0
        self._begun: set[str] = set()
        self._asked_at = self._ended_at = 0.0
        self._goes_on = False
        self._wait = 0.0  # before the next page is worth a try, while it goes on
        self._items: ShardKey | None = None
        """The items that were read last."""
        self._changes_come: bool | None = False
        """True if the workers had a message at the last look; None: nobody has looked since."""

    def note_changes(self, have_come: bool) -> None:
        """Take in whether a look at what the workers send has found something."""
        self._changes_come = have_come

    def next(
        self, streams: Iterable[WatchedStream], delivery: Delivery
    ) -> tuple[WatchedStream, TableSnapshot, Page] | None:
        """Read a page of items, if one is due and nothing is being delivered.

        Raises StreamError where the very first is refused.
        """
        self._wait = math.inf
        if self._items is not None and delivery.is_delivering(self._items):
            return None
        now = self._clock.monotonic()
        if self._goes_on and self._give_changes_time(now, delivery):
            delivery.release()
            return None
        self._goes_on = False
        for stream in streams if now >= self._due else ():
            snapshot = stream.snapshot
            if snapshot is None or not stream.snapshot_is_due or now < snapshot.due:
                continue
            if not delivery.reserve(snapshot.shard_key):
                return None
            self._asked_at, self._ended_at = now, 0.0
            if (page := self._read(stream, snapshot)) is not None:
                return stream, snapshot, page
            break
        delivery.release()
        return None

    def _give_changes_time(self, now: float, delivery: Delivery) -> bool:
        """Let changes come as long as the last page has taken; False where it is items' turn."""
        if self._changes_come is None:
            self._wait = 0.0
            return True
        some_wait = delivery.has_changes_beside(self._items)
        if not (self._changes_come or some_wait):
            return False
        self._ended_at = self._ended_at or now
        left = 2 * self._ended_at - self._asked_at - now
        if left <= 0:
            return False
        self._wait = left if some_wait else 0.0
        return True

    def _read(self, stream: WatchedStream, snapshot: TableSnapshot) -> Page | None:
        try:
            page = snapshot.read()
        except (ServiceError, StreamError) as error:
            self._note_trouble(stream, error)
            return None
        self._failures, self._goes_on, self._wait = 0, True, 0.0
        self._items, self._changes_come = snapshot.shard_key, None
        self._begun.add(stream.arn)
        if snapshot.is_done:
            stream.end_scan()
            count = counted(snapshot.items, "item")
            logger.info(f"Snapshot of {stream.table}: {count}, then changes alone")
        return page

    def pause(self, seconds: float) -> float:
        """Returns how long to wait for what the workers send."""
        return min(seconds, self._wait) if self._goes_on else seconds

    def _note_trouble(self, stream: WatchedStream, error: ServiceError | StreamError) -> None:
        if isinstance(error, StreamError) and stream.arn not in self._begun:
            raise error
        self._failures += 1
        timing = self._timing
        pause = backoff(self._failures, timing.again_seconds, timing.again_most_seconds)
        self._due = self._clock.monotonic() + pause
        if worth_logging(self._failures):
            text = f"Can't read the items of {stream.table}, trying again: {error}"
            logger.warning(text, extra={"stream": stream.arn})
