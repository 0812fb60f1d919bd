"""Whose turn it is: things rest for a while, and come again in the order of their times."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable
from typing import Generic, TypeVar

from watcher.clock import Clock

_Thing = TypeVar("_Thing")


class Turns(Generic[_Thing]):
    """Things that rest; the one whose turn came first is the first to be given out."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._resting: list[tuple[float, int, _Thing]] = []
        self._order = itertools.count()

    def __len__(self) -> int:
        return len(self._resting)

    def rest(self, thing: _Thing, seconds: float) -> None:
        """Let it rest so long."""
        due = self._clock.monotonic() + seconds
        heapq.heappush(self._resting, (due, next(self._order), thing))

    def wait(self) -> float:
        """Seconds until the next turn; none or less where it has come."""
        return self._resting[0][0] - self._clock.monotonic() if self._resting else math.inf

    def next(self) -> _Thing | None:
        """The thing whose turn has come; it no longer rests."""
        return heapq.heappop(self._resting)[2] if self.wait() <= 0 else None

    def hurry(self, which: Callable[[_Thing], bool]) -> None:
        """The turn of these has come now."""
        now = self._clock.monotonic()
        self._resting = [
            (min(due, now) if which(thing) else due, order, thing)
            for due, order, thing in self._resting
        ]
        heapq.heapify(self._resting)

    def clear(self) -> None:
        """Forget all."""
        self._resting.clear()
