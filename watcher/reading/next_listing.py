"""When a stream's shards are to be listed again."""

from __future__ import annotations

import math
from collections.abc import Callable

from watcher.backoff import backoff
from watcher.clock import Clock

_SECONDS = 5.0
# DescribeStream allows 10 calls a second, shared with everybody else.
_PAGES_A_SECOND = 5
# So long at most without one, while it could tell nothing that is needed.
_SECONDS_MAX = 60.0
_TROUBLE_SECONDS = 1.0


class NextListing:
    """Every few seconds, the more seldom the larger it is; sooner where somebody waits for one."""

    def __init__(self, clock: Clock) -> None:
        self.sharers = 1  # of DescribeStream's limit
        self.listed_at = -math.inf
        """When (monotonic) the last one came."""
        self.failures = 0
        """How often in a row there was none."""
        self.failing_since = math.inf
        """When (monotonic) it was that there was none for the first time of these."""
        self._clock = clock
        self._due = -math.inf
        self._wanted = math.inf
        self._period = _SECONDS

    def is_due(self, is_of_use: Callable[[], bool]) -> bool:
        """Whether it is time; one that nobody waits for and that is of no use may come later."""
        now = self._clock.monotonic()
        if now < self._due or now >= self._wanted:
            return now >= self._wanted
        if now >= self.listed_at + _SECONDS_MAX or is_of_use():
            return True
        self._due = now + self._period
        return False

    def came(self, pages: int, by: float = -math.inf) -> None:
        """It came, and took so many calls; the next comes at this moment if that is sooner."""
        self.listed_at = now = self._clock.monotonic()
        self.failures, self.failing_since = 0, math.inf
        self._period = _SECONDS + pages * self.sharers / _PAGES_A_SECOND
        self._due, self._wanted = now + self._period, math.inf
        if now < by:  # the others' turns come between
            self._due = min(self._due, by + pages * (self.sharers - 1) / _PAGES_A_SECOND)

    def failed(self) -> None:
        """It did not come: the oftener that is so, the later the next try."""
        self.failures += 1
        self.failing_since = min(self.failing_since, self._clock.monotonic())
        pause = backoff(self.failures, _TROUBLE_SECONDS, _SECONDS)
        self._due = self._wanted = self._clock.monotonic() + pause

    def found_nothing(self) -> None:
        """There is no such stream."""
        self._due = self._clock.monotonic() + _SECONDS
        self._wanted = math.inf

    def want_in(self, seconds: float) -> None:
        """Somebody waits for the one that comes after so many seconds."""
        self._wanted = min(self._wanted, self._clock.monotonic() + max(0.0, seconds))

    def late(self) -> float:
        """For how many seconds one has been due that has neither come nor failed; 0: none is."""
        return max(0.0, self._clock.monotonic() - min(self._due, self._wanted))
