"""Limits the program's calls of DescribeStream a second, for all streams together."""

from __future__ import annotations

import functools
import threading
from collections import deque

from watcher.clock import CLOCK, Clock

# DescribeStream allows 10 calls a second, for all programs of an account in a region together.
_CALLS = 4
# A little more than a second, since calls arrive later than they are sent, and not evenly.
_SECONDS = 1.05


class CallRateLimiter:
    """Lets `calls` begin within any `seconds`; more have to wait. For several threads at once."""

    def __init__(
        self, clock: Clock = CLOCK, calls: int = _CALLS, seconds: float = _SECONDS
    ) -> None:
        self._clock = clock
        self._calls = calls
        self._seconds = seconds
        self._begun: deque[float] = deque()
        self._lock = threading.Lock()

    def turn(self) -> float:
        """Takes the next turn; returns the seconds until it comes. Later callers come after it."""
        with self._lock:
            now = moment = self._clock.monotonic()
            if len(self._begun) == self._calls:
                moment = max(now, self._begun.popleft() + self._seconds)
            self._begun.append(moment)
        return moment - now


@functools.cache
def call_limiter_for(endpoint: str) -> CallRateLimiter:
    """Returns the program's one limiter of DescribeStream for an endpoint."""
    return CallRateLimiter()
