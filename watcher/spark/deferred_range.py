"""Finds out that a shard's reader in the driver is behind, and up to where executors are to read.

The driver reads a page in some 6 ms; executors are many. So where there is a backlog, the driver
asks for one record near the shard's tip, whose number is the end of an exact range, and leaves all
up to there to an executor. It goes on behind it, and reads by itself while it keeps up.
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
from watcher.streams.messages import Message, Page, Started
from watcher.streams.page_fetcher import PageFetcher, is_full
from watcher.streams.requests import GetIterator, ReadSteps

# A reader that keeps up has a page within a second or so of its making.
BEHIND_SECONDS = 10.0
# One page that is old says little: the first one after a pause always is. But if it is full, more
# follows, and each that is read here is read once more by an executor.
_OLD_PAGES = 2
# The tip is half of that ago; where nothing was written since, so many times as long may do.
_TIMES_BACK: Final = (1, 12, 120, 720)
_ASK_SECONDS = 10.0
# Of a shard that allows less a second, an executor can't read more than the driver.
_LEAST_ALLOWED = 2.0


class DeferredRange(msgspec.Struct, frozen=True):
    """All up to this number is for executors to read: there is a backlog."""

    upto: str
    created: float
    """When one of its first records was made."""


class Backlog:
    """How far behind one shard's reader is; `found` tells, from all that it says."""

    def __init__(self, arn: str, shard_id: str, behind_seconds: float, clock: Clock) -> None:
        self._arn = arn
        self._shard_id = shard_id
        self._behind_seconds = behind_seconds
        self._clock = clock
        self._service_ahead = 0.0  # of the monotonic clock, in epoch seconds
        self._old_pages = 0
        self._ask_at = 0.0
        self._to_try = deque[float]()
        """So many seconds ago a record is to be looked for."""
        self._created, self._newest = 0.0, 0  # of what had been read by then

    def found(self, read: Iterable[Message], reads: PageFetcher) -> ReadSteps[DeferredRange | None]:
        """What to leave, up to a record far behind these; None where the reader keeps up.

        None, too, where the service lets no read come just now: then `tip` is to be called next.
        """
        newest: Page | None = None
        for each in read:
            if isinstance(each, Started):
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
        if self._old_pages < _OLD_PAGES or now < self._ask_at or is_slow:
            return None
        self._ask_at = now + _ASK_SECONDS
        self._created, self._newest = created, int(newest.last_sequence_number)
        back = (times * self._behind_seconds / 2 for times in _TIMES_BACK)
        self._to_try = deque(seconds for seconds in back if seconds < age)
        return (yield from self.tip(reads))

    def tip(self, reads: PageFetcher) -> ReadSteps[DeferredRange | None]:
        """The same, while `awaits_turn`; a read for each attempt, when its turn has come.

        What goes wrong with this, goes wrong with the reading too, and is told there.
        """
        while self._to_try and not reads.pause():
            now = self._clock.monotonic() + self._service_ahead
            time = datetime.fromtimestamp(int(now - self._to_try.popleft()), UTC)
            try:
                iterator, _ = yield GetIterator(self._arn, self._shard_id, AtTime(time))
                body = yield from reads.fetch_elsewhere(iterator, limit=1)
                records = page.decode(body).Records
            except TimestampRefusedError:
                self._ask_at = math.inf
                self._to_try.clear()
            except (ServiceError, StreamError):
                self._to_try.clear()
            else:
                if records:
                    self._to_try.clear()
                    number = records[0].dynamodb.SequenceNumber
                    return (
                        DeferredRange(number, self._created) if int(number) > self._newest else None
                    )
        return None

    @property
    def awaits_turn(self) -> bool:
        """Whether the tip is to be looked for, and the service lets no read come just now."""
        return bool(self._to_try)
