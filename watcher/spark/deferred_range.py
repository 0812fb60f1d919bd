"""Defers a shard's backlog to executors: detects it, and finds a record near the tip as its end.

The driver reads a page in some 6 ms; executors are many. So where there is a backlog, the driver
reads one record near the shard's tip, whose number is the end of an exact range, and leaves all up
to there to an executor. It goes on behind it, and reads by itself while it keeps up.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

import msgspec

from watcher.aws.model import AtTime
from watcher.clock import Clock
from watcher.errors import ServiceError, StreamError, TimestampRefusedError
from watcher.records import page
from watcher.records.wire import WireRecord
from watcher.spark.timing import Timing
from watcher.streams.messages import IteratorGranted, Message, Page
from watcher.streams.page_fetcher import PageFetcher, is_full
from watcher.streams.requests import GetIterator, ReadSteps

# One page that is old says little: the first one after a pause always is. But if it is full, more
# follows, and each that is read here is read once more by an executor.
_OLD_PAGES = 2
# The tip is half of that ago; where nothing was written since, so many times as long may do.
_TIMES_BACK: Final = (1, 12, 120, 720)
# Of a shard that allows less a second, an executor can't read more than the driver.
_LEAST_ALLOWED = 2.0


class DeferredRange(msgspec.Struct, frozen=True):
    """A backlog: executors read all up to this number."""

    upto: str
    created: float
    """The time of one of its first records."""
    upto_created: float = 0.0
    """The time of its last one."""
    ends_now: bool = True
    """True if that was made just now; else the shard is a quiet one, and some may follow."""


class BacklogDetector:
    """Tells from one shard's messages whether its reader is behind, and finds the backlog's end."""

    def __init__(self, arn: str, shard_id: str, timing: Timing, clock: Clock) -> None:
        self._arn = arn
        self._shard_id = shard_id
        self._timing = timing
        self._clock = clock
        self._service_ahead = 0.0  # of the monotonic clock, in epoch seconds
        self._old_pages = 0
        self._look_at = 0.0
        self._to_try = deque[float]()
        """Seconds ago at which a record is looked for, one after the other."""
        self._created, self._newest = 0.0, 0  # of what had been read by then

    def on_messages(
        self, messages: Iterable[Message], reads: PageFetcher
    ) -> ReadSteps[DeferredRange | None]:
        """Returns what to defer, up to a record far behind these; None where the reader keeps up.

        None, too, where the service allows no read just now: `find_end` is to be called next then.
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
        self._old_pages = seen if age > self._timing.behind_seconds else 0
        is_slow = reads.rate.allowed < _LEAST_ALLOWED
        if self._old_pages < _OLD_PAGES or now < self._look_at or is_slow:
            return None
        self._look_at = now + self._timing.look_for_end_seconds
        self._created, self._newest = created, int(newest.last_sequence_number)
        back = (times * self._timing.behind_seconds / 2 for times in _TIMES_BACK)
        self._to_try = deque(seconds for seconds in back if seconds < age)
        return (yield from self.find_end(reads))

    def find_end(self, reads: PageFetcher) -> ReadSteps[DeferredRange | None]:
        """Looks for the end, one read an attempt, while `awaits_turn`; returns what to defer.

        An error here is an error of the reading, too, which reports it.
        """
        while self._to_try and not reads.delay():
            now = self._clock.monotonic() + self._service_ahead
            ago = self._to_try.popleft()
            time = datetime.fromtimestamp(int(now - ago), UTC)
            try:
                iterator, _ = yield GetIterator(self._arn, self._shard_id, AtTime(time))
                body = yield from reads.fetch_at(iterator, limit=1)
                records = page.decode(body).Records
            except TimestampRefusedError:
                self._look_at = math.inf
                self._to_try.clear()
            except (ServiceError, StreamError):
                self._to_try.clear()
            else:
                if records:
                    self._to_try.clear()
                    return self._deferred(records[0], ends_now=ago <= self._timing.behind_seconds)
        return None

    def _deferred(self, last: WireRecord, *, ends_now: bool) -> DeferredRange | None:
        number = last.dynamodb.SequenceNumber
        created = last.dynamodb.ApproximateCreationDateTime or 0.0
        if int(number) <= self._newest:
            return None
        return DeferredRange(number, self._created, created, ends_now)

    @property
    def awaits_turn(self) -> bool:
        """True while the end is to be looked for, and the service allows no read just now."""
        return bool(self._to_try)
