"""Where the reading of an open shard ends that is to bring everything up to now.

The rule, for all engines. What there was as the reading began has to come; what a clock says of
that is not to be trusted: a record may be stamped ahead, and the service's `Date` be minutes off.
Nor is an empty page, since GetRecords may answer some though records follow.

- A closed shard (its listing has an ending number, or shows a child) ends where its iterator does,
  however many pages are empty before; and then its children's turn comes.
- An open shard ends at the first record that came after the beginning. LATEST tells which: what an
  iterator gives that was asked for after the beginning came after it. It is asked for once the
  beginning is some seconds past, since a write takes a moment to reach the stream, and a listing
  may show a closed shard as open for as long.
- Where nothing comes, neither from LATEST nor before it, the end of an open shard can't be known:
  it is left after many empty pages in a row, not before those seconds have passed, and that is
  said. Whether they have is told by the service's time now and at the beginning, or by their
  passing here: so it is enough that one of the clocks goes on.
"""

from __future__ import annotations

import math
from datetime import datetime, timedelta

from watcher.clock import Clock
from watcher.errors import ServiceError, StreamError
from watcher.reading.sieve import numbers_of
from watcher.record import page
from watcher.service.model import Latest, Service

SETTLED_SECONDS = 5.0
"""So long after a moment, what was there at it shows in listings and in shards."""
# … and a roster has seen a listing made then.
_LISTING_SECONDS = 0.5
# Bloop counts 5 to get through a shard that is 4 hours old.
EMPTY_PAGES = 10
_ASK_SECONDS = 1.0
# An iterator may go back, also one at LATEST: not all of so many.
_TIMES_ASKED = 3


class OpenEnd:
    """The end of an open shard, found out while it is read.

    `until` is a moment some seconds after the beginning, by the service's clock.
    """

    def __init__(self, arn: str, shard_id: str, until: datetime, clock: Clock) -> None:
        self.number: int | None = None
        """The number of the first record that came after the beginning, once known."""
        self._arn = arn
        self._shard_id = shard_id
        self._until = until
        self._clock = clock
        self._due = clock.monotonic() + SETTLED_SECONDS + _LISTING_SECONDS
        self._latest: str | None = None
        self._found: list[int] = []
        self._after = -1
        self._ask_at = -math.inf

    def by(self, time: datetime) -> None:
        """The service's time of this moment."""
        missing = max(timedelta(), self._until - time).total_seconds()
        self._due = min(self._due, self._clock.monotonic() + missing)

    @property
    def is_due(self) -> bool:
        """Whether the beginning is so long past that LATEST is after it."""
        return self._clock.monotonic() >= self._due

    def ask(self, service: Service, newest: int) -> None:
        """Look for its number, where `newest` is the last that was read.

        What goes wrong with that, goes wrong elsewhere too, and is told there.
        """
        if self.number is not None or not self.is_due or self._clock.monotonic() < self._ask_at:
            return
        self._ask_at = self._clock.monotonic() + _ASK_SECONDS
        while (first := self._first_from_latest(service, newest)) is not None:
            self._found.append(first)
            if len(self._found) >= _TIMES_ASKED:
                self.number = max(self._found)
                return

    def _first_from_latest(self, service: Service, newest: int) -> int | None:
        """The first number that LATEST gives by now; the next time, a new iterator is asked."""
        try:
            if self._latest is None:
                self._latest, _ = service.iterator(self._arn, self._shard_id, Latest())
                self._after = newest
            wire = page.decode(service.records(self._latest))
            numbers = numbers_of(wire.Records)
        except (ServiceError, StreamError):
            self._latest = None  # a later one will do
            return None
        self._latest = None if numbers else wire.NextShardIterator
        # A service that answers LATEST with what had come before knows no LATEST.
        return numbers[0] if numbers and numbers[0] > self._after else None

    def is_left(self, empty_pages: int) -> bool:
        """Whether so many empty pages in a row are believed."""
        return empty_pages >= EMPTY_PAGES and self.is_due
