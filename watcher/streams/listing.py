"""Schedules the listings of a stream's shards."""

from __future__ import annotations

import math
from datetime import datetime, timedelta

from watcher.aws.model import opened_at
from watcher.clock import Clock
from watcher.retry import Backoff
from watcher.streams.lineage import Lineage
from watcher.streams.timing import TIMING

_LISTING_SECONDS = 5.0
"""The delay between listings of a small stream."""
_LISTING_PAGES_PER_SECOND = 5
"""Half of the 10 DescribeStream calls a second that AWS allows to an account."""
_LISTING_BACKOFF = Backoff(first_seconds=1.0, longest_seconds=5.0)
"""The delays after failed listings."""
_LATE_CHILD_SECONDS = 0.25
"""The first delay before a search for a finished shard's child; listings may lag."""


def is_young(shard_id: str, listed: datetime) -> bool:
    """True if a listing of that time may lack a sibling of this shard."""
    opened = opened_at(shard_id)
    return opened is None or opened + timedelta(seconds=TIMING.listed_seconds) > listed


class ListingSchedule:
    """Decides when to list shards: every few seconds, plus a share for each page.

    `want_in` makes it sooner, where something waits for a listing, such as finished shards without
    a known child, of which some never get one; with `only_wanted`, nothing else makes it due.
    """

    def __init__(self, clock: Clock, *, only_wanted: bool = False) -> None:
        self.stream_count = 1
        """The number of streams that share DescribeStream's limit."""
        self.listed_at = -math.inf
        """A (monotonic) time by which the last listing shows all shards."""
        self.settled_at = -math.inf
        """The (monotonic) time from which no child is missing."""
        self.failures = 0
        """The number of failures in a row."""
        self.failing_since = math.inf
        """The (monotonic) time of the first of these failures; infinite: none."""
        self._clock = clock
        self._only_wanted = only_wanted
        self._due = math.inf if only_wanted else -math.inf
        self._wanted = math.inf
        self._period = _LISTING_SECONDS
        self._childless = dict[str, float]()
        """The time until which a child of each of these finished shards may be missing."""
        self._child_delay = _LATE_CHILD_SECONDS

    @property
    def due_in(self) -> float:
        """Seconds until a listing is due; negative where it is late."""
        return min(self._due, self._wanted) - self._clock.monotonic()

    @property
    def late_seconds(self) -> float:
        """Seconds since a listing became due; 0 if none is."""
        return max(0.0, -self.due_in)

    def on_listing(self, pages: int, *, asked_at: float, by: float = -math.inf) -> None:
        """Notes a listing of `pages` calls; the next one is due by `by`, if that is ahead.

        `asked_at` is the (monotonic) time before the call: the listing shows nothing later.
        """
        self.listed_at, now = asked_at, self._clock.monotonic()
        self.failures, self.failing_since = 0, math.inf
        self._period = _LISTING_SECONDS + pages * self.stream_count / _LISTING_PAGES_PER_SECOND
        self._due, self._wanted = now + self._period, math.inf
        if self._only_wanted:
            self._due = math.inf
        elif now < by:  # the other streams' listings come between
            others = pages * (self.stream_count - 1) / _LISTING_PAGES_PER_SECOND
            self._due = min(self._due, by + others)

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

    # Children that are not listed yet

    def on_finished(
        self, shard_id: str, *, closed_at: float, is_alone: bool, may_have_more: bool
    ) -> None:
        """Notes that a shard has finished; `is_alone`: without a known child.

        `closed_at` is a (monotonic) time by which it was closed, so that its children existed.
        """
        now = self._clock.monotonic()
        until = closed_at + TIMING.listed_seconds
        # The oldest stand first; to look at all of them each time takes long for thousands.
        while self._childless and self._childless[name := next(iter(self._childless))] <= now:
            del self._childless[name]
        if is_alone:
            self._childless[shard_id] = until
            self._child_delay = _LATE_CHILD_SECONDS
        if may_have_more:
            self.settle_at(until)

    def settle_at(self, time: float) -> None:
        """Notes that a child may be missing until this (monotonic) time."""
        self.settled_at = max(self.settled_at, time)

    def want_children(self, lineage: Lineage) -> None:
        """Requests a listing, later each time, if a just finished shard's child may be missing."""
        now = self._clock.monotonic()
        if any(
            now < until and not lineage.children(name) for name, until in self._childless.items()
        ):
            self.want_in(self._child_delay)
            self._child_delay = min(self._child_delay * 2, TIMING.late_child_seconds_max)
