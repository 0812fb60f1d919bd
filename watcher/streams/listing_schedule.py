"""Schedules the listings of a stream's shards."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime, timedelta

from watcher.aws.model import opened_at
from watcher.clock import Clock
from watcher.retry import Backoff
from watcher.streams.lineage import Lineage
from watcher.streams.timing import TIMING

_LATE_CHILD_SECONDS = 0.25
"""The first delay before a search for a finished shard's child; listings may lag."""
_LATE_CHILD_EXPECTED_SECONDS = 60.0
"""The time for which an unlisted child is searched."""
_LISTING_SECONDS = 5.0
"""The delay between listings of a small stream."""
_LISTING_SECONDS_MAX = 60.0
"""The longest delay before a listing that shows nothing needed at the moment."""
_LISTING_PAGES_PER_SECOND = 5
"""Half of the 10 DescribeStream calls a second that AWS allows to an account."""
_LISTING_BACKOFF = Backoff(first_seconds=1.0, longest_seconds=5.0)
"""The delays after failed listings."""


def is_young(shard_id: str, listed: datetime) -> bool:
    """True if a listing of that time may lack a sibling of this shard."""
    opened = opened_at(shard_id)
    return opened is None or opened + timedelta(seconds=TIMING.listed_seconds) > listed


class LateChildren:
    """Finished shards without a known child; some never get one."""

    def __init__(self, clock: Clock) -> None:
        self.settled_at = -math.inf
        """The (monotonic) time from which no child is missing."""
        self._clock = clock
        self._until: dict[str, float] = {}
        self._delay = _LATE_CHILD_SECONDS
        self._looked_for_until = -math.inf

    def on_finished(
        self, shard_id: str, *, closed_at: float, is_alone: bool, may_have_more: bool
    ) -> None:
        """Notes that a shard has finished; `is_alone`: without a known child.

        `closed_at` is a (monotonic) time by which it was closed, so that its children existed.
        """
        now = self._clock.monotonic()
        until = closed_at + TIMING.listed_seconds
        self._until = {name: end for name, end in self._until.items() if now < end}
        if is_alone:
            looked_for_until = closed_at + _LATE_CHILD_EXPECTED_SECONDS
            self._looked_for_until = max(self._looked_for_until, looked_for_until)
            self._until[shard_id] = until
            self._delay = _LATE_CHILD_SECONDS
        if may_have_more:
            self.settle_at(until)

    def settle_at(self, time: float) -> None:
        """Notes that a child may be missing until this (monotonic) time."""
        self.settled_at = max(self.settled_at, time)

    def may_still_come(self) -> bool:
        """True if a shard has finished without a child in the last minute."""
        return self._clock.monotonic() < self._looked_for_until

    def are_missing(self, lineage: Lineage) -> bool:
        """True if a shard's child may not be listed yet, as the shard has just finished."""
        now = self._clock.monotonic()
        return any(
            now < until and not lineage.children(shard_id)
            for shard_id, until in self._until.items()
        )

    def delay(self) -> float:
        """Returns the seconds until the next listing, more each time."""
        delay, self._delay = self._delay, min(self._delay * 2, TIMING.late_child_seconds_max)
        return delay


class ListingSchedule:
    """Decides when to list shards: every few seconds, plus a share for each page.

    `want_in` makes it sooner, where something waits for a listing; with `only_wanted`, nothing else
    makes it due.
    """

    def __init__(self, clock: Clock, *, only_wanted: bool = False) -> None:
        self._stream_count = 1  # that share DescribeStream's limit
        self.listed_at = -math.inf
        """A (monotonic) time by which the last listing shows all shards."""
        self.failures = 0
        """The number of failures in a row."""
        self.failing_since = math.inf
        """The (monotonic) time of the first of these failures."""
        self._clock = clock
        self._only_wanted = only_wanted
        self._due = math.inf if only_wanted else -math.inf
        self._wanted = math.inf
        self._period = _LISTING_SECONDS

    def share(self, streams: int) -> None:
        """Notes how many streams share DescribeStream's limit, with this one."""
        self._stream_count = streams

    @property
    def due_in(self) -> float:
        """Seconds until `should_list` may return True; negative where it is late."""
        return min(self._due, self._wanted) - self._clock.monotonic()

    def should_list(self, is_of_use: Callable[[], bool]) -> bool:
        """Returns True if a listing is due; postpones one that is neither useful nor wanted."""
        now = self._clock.monotonic()
        if now < self._due or now >= self._wanted:
            return now >= self._wanted
        if now >= self.listed_at + _LISTING_SECONDS_MAX or is_of_use():
            return True
        self._due = now + self._period
        return False

    def on_listing(self, pages: int, *, asked_at: float, by: float = -math.inf) -> None:
        """Notes a listing of `pages` calls; the next one is due by `by`, if that is ahead.

        `asked_at` is the (monotonic) time before the call: the listing shows nothing later.
        """
        self.listed_at, now = asked_at, self._clock.monotonic()
        self.failures, self.failing_since = 0, math.inf
        self._period = _LISTING_SECONDS + pages * self._stream_count / _LISTING_PAGES_PER_SECOND
        self._due, self._wanted = now + self._period, math.inf
        if self._only_wanted:
            self._due = math.inf
        elif now < by:  # the other streams' listings come between
            self._due = min(
                self._due,
                by + pages * (self._stream_count - 1) / _LISTING_PAGES_PER_SECOND,
            )

    def on_failure(self) -> None:
        """Notes a failure: the next try is later after each of them in a row."""
        self.failures += 1
        self.failing_since = min(self.failing_since, self._clock.monotonic())
        delay = _LISTING_BACKOFF.after(self.failures)
        self._due = self._wanted = self._clock.monotonic() + delay

    def on_gone(self) -> None:
        """Notes that the stream no longer exists."""
        self._due = self._clock.monotonic() + _LISTING_SECONDS
        self._wanted = math.inf

    def want_in(self, seconds: float) -> None:
        """Requests a listing after `seconds`."""
        self._wanted = min(self._wanted, self._clock.monotonic() + max(0.0, seconds))

    def late(self) -> float:
        """Returns the seconds since a listing became due; 0 if none is."""
        return max(0.0, -self.due_in)
