"""Defers a shard's backlog to executors: detects it, and finds a record near the tip as its end.

The driver takes some 6 ms a page; there are many executors. If there is a backlog, the driver reads
one record near the shard's tip, whose number is the end of an exact range, and leaves the range to
an executor. It continues behind the range, and reads by itself while it keeps up.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

import msgspec

from watcher.aws.model import AtTime, Service
from watcher.clock import Clock
from watcher.errors import ServiceError, StreamError, TimestampRefusedError
from watcher.records import page
from watcher.records.wire import WireRecord
from watcher.streams.messages import IteratorGranted, Message, Page
from watcher.streams.read_rate import PageFetcher, is_full

BEHIND_SECONDS: Final = 10.0
"""The age from which a page is backlog: a reader that keeps up has it within seconds."""
# The delay between two searches for the end of a backlog.
_LOOK_FOR_END_SECONDS: Final = 10.0
# A single old page means little: the first one after a pause always is. But after a full one more
# follow, and an executor reads again what the driver has read.
_OLD_PAGES = 2
# In halves of `behind_seconds`: how far back a record near the tip is searched.
_TIMES_BACK: Final = (1, 12, 120, 720)
# Below this rate (reads a second), an executor can't read more than the driver.
_LEAST_ALLOWED = 2.0


class DeferredRange(msgspec.Struct, frozen=True):
    """A backlog that executors read, up to this number."""

    upto: str
    created: float
    """The creation time of one of its first records."""
    upto_created: float = 0.0
    """The creation time of its last record."""
    ends_now: bool = True
    """True if the last record is recent; else the shard is quiet, and others may follow."""


class BacklogDetector:
    """Detects from a shard's messages that its reader is behind, and finds the backlog's end."""

    def __init__(self, arn: str, shard_id: str, clock: Clock, behind_seconds: float) -> None:
        self._arn = arn
        self._shard_id = shard_id
        self._behind_seconds = behind_seconds
        self._clock = clock
        self._service_ahead = 0.0  # epoch seconds minus monotonic ones
        self._old_pages = 0
        self._look_at = 0.0
        self._to_try = deque[float]()
        """The ages, in seconds, at which a record is searched, one after the other."""
        self._created, self._newest = 0.0, 0  # the time and number of the last record read

    def on_messages(
        self, messages: Iterable[Message], reads: PageFetcher, service: Service
    ) -> DeferredRange | None:
        """Returns a range to defer if the reader is behind; None if it keeps up.

        Also returns None if the rate limit allows no read now; the caller then calls `find_end`.
        """
        newest: Page | None = None
        for each in messages:
            if isinstance(each, IteratorGranted):
                self._service_ahead = each.time.timestamp() - self._clock.monotonic()
            elif isinstance(each, Page):
                newest = each
        if newest is None:
            return None
        now = self._clock.monotonic()
        created = newest.last_created or 0.0
        age = now + self._service_ahead - created
        seen = _OLD_PAGES if is_full(newest.count, len(newest.body)) else self._old_pages + 1
        self._old_pages = seen if age > self._behind_seconds else 0
        is_slow = reads.rate.allowed < _LEAST_ALLOWED
        if self._old_pages < _OLD_PAGES or now < self._look_at or is_slow:
            return None
        self._look_at = now + _LOOK_FOR_END_SECONDS
        self._created, self._newest = created, int(newest.last_sequence_number)
        back = (times * self._behind_seconds / 2 for times in _TIMES_BACK)
        self._to_try = deque(seconds for seconds in back if seconds < age)
        return self.find_end(reads, service)

    def find_end(self, reads: PageFetcher, service: Service) -> DeferredRange | None:
        """Searches the end, with one read a call, while `awaits_turn`; returns a range to defer.

        An error only ends the search: the reader meets the same error, and reports it.
        """
        while self._to_try and not reads.rate.delay():
            now = self._clock.monotonic() + self._service_ahead
            ago = self._to_try.popleft()
            time = datetime.fromtimestamp(int(now - ago), UTC)
            try:
                iterator, _ = service.get_iterator(self._arn, self._shard_id, AtTime(time))
                body = reads.fetch_at(iterator, service, limit=1)
                records = page.decode(body).Records
            except TimestampRefusedError:
                self._look_at = math.inf
                self._to_try.clear()
            except (ServiceError, StreamError):
                self._to_try.clear()
            else:
                if records:
                    self._to_try.clear()
                    return self._deferred(records[0], ends_now=ago <= self._behind_seconds)
        return None

    def _deferred(self, last: WireRecord, *, ends_now: bool) -> DeferredRange | None:
        number = last.dynamodb.SequenceNumber
        created = last.dynamodb.ApproximateCreationDateTime or 0.0
        if int(number) <= self._newest:
            return None
        return DeferredRange(number, self._created, created, ends_now)

    @property
    def awaits_turn(self) -> bool:
        """True while the end is searched, and the rate limit allows no read."""
        return bool(self._to_try)
