"""Which stream's items are read next, in turn with what the shards give."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable

from watcher.clock import CLOCK, Clock
from watcher.delivery.sequential import SequentialDelivery
from watcher.errors import ServiceError, StreamError
from watcher.formatting.text import counted
from watcher.pull.table_snapshot import TableSnapshot
from watcher.retry import backoff, worth_logging
from watcher.runtime.watched_stream import WatchedStream
from watcher.streams.messages import Page

logger = logging.getLogger("watcher")

_AGAIN_SECONDS = 1.0
_AGAIN_SECONDS_MAX = 30.0


class TableSnapshots:
    """Asks for one page after the other; changes get as much time as items have taken."""

    def __init__(self, clock: Clock = CLOCK) -> None:
        self._clock = clock
        self._failures = 0
        self._due = 0.0
        self._begun: set[str] = set()
        self._asked_at = self._ended_at = 0.0
        self._goes_on = False
        self._wait = 0.0  # before the next page is worth a try, while it goes on
        self.changes_come = False
        """Whether the last look at what the shards send has found something."""

    def next(
        self, streams: Iterable[WatchedStream], handover: SequentialDelivery
    ) -> tuple[WatchedStream, TableSnapshot, Page] | None:
        """A page of items, if one is due and nothing is being handed over.

        Raises StreamError where the very first is refused.
        """
        self._wait = math.inf
        if handover.has_items:
            return None
        now = self._clock.monotonic()
        if self._goes_on and (self.changes_come or handover.has_changes):
            self._ended_at = self._ended_at or now
            left = 2 * self._ended_at - self._asked_at - now
            if left > 0:
                self._wait = left if handover.has_changes else 0.0
                return None
        self._goes_on = False
        if now < self._due:
            return None
        for stream in streams:
            snapshot = stream.snapshot
            if snapshot is None or not stream.snapshot_is_due:
                continue
            if not handover.stands_for(snapshot.origin):
                return None
            self._asked_at, self._ended_at = now, 0.0
            try:
                page = snapshot.read()
            except (ServiceError, StreamError) as error:
                self._trouble(stream, error)
                return None
            self._failures, self._goes_on, self._wait = 0, True, 0.0
            self._begun.add(stream.arn)
            if snapshot.is_done:
                count = counted(snapshot.items, "item")
                logger.info(f"Snapshot of {stream.table}: {count}, then changes alone")
            return stream, snapshot, page
        return None

    def pause(self, seconds: float) -> float:
        """How long to wait for what the shards send."""
        return min(seconds, self._wait) if self._goes_on else seconds

    def _trouble(self, stream: WatchedStream, error: ServiceError | StreamError) -> None:
        if isinstance(error, StreamError) and stream.arn not in self._begun:
            raise error
        self._failures += 1
        self._due = self._clock.monotonic() + backoff(
            self._failures, _AGAIN_SECONDS, _AGAIN_SECONDS_MAX
        )
        if worth_logging(self._failures):
            text = f"Can't read the items of {stream.table}, trying again: {error}"
            logger.warning(text, extra={"stream": stream.arn})
