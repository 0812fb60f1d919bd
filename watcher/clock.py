"""Time as an object, so that tests and the simulation can pass their own; a queue by time."""

from __future__ import annotations

import heapq
import itertools
import math
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Generic, TypeVar

# AWS refuses signatures of clocks that differ by more.
_MOST_APART = timedelta(minutes=15)


_Item = TypeVar("_Item")


class Clock:
    """The machine's clock; every value is in seconds."""

    # A bare function, not a method: it is called for every record.
    monotonic: Callable[[], float] = staticmethod(time.monotonic)
    """Never goes back; only differences are meaningful."""

    # On Linux, `monotonic` stands still while a laptop sleeps.
    boottime: Callable[[], float] = staticmethod(
        partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
    )
    """As `monotonic`, but also runs while the machine sleeps."""

    def time(self) -> float:
        """Returns this machine's epoch seconds, which may be wrong, and may jump."""
        return time.time()

    def now(self) -> datetime:
        """Returns this machine's time as an aware datetime."""
        return datetime.fromtimestamp(self.time(), UTC)

    def sleep(self, seconds: float) -> None:
        """Waits for this number of seconds."""
        time.sleep(seconds)


CLOCK = Clock()
"""The default clock."""


class DueQueue(Generic[_Item]):
    """A queue of items with their due times; the first due item comes out first."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[tuple[float, int, _Item]] = []
        self._order = itertools.count()

    def __len__(self) -> int:
        return len(self._heap)

    def __iter__(self) -> Iterator[_Item]:
        return (item for _, _, item in self._heap)

    def put(self, item: _Item, delay: float) -> None:
        """Adds an item that is due after `delay` seconds."""
        due = self._clock.monotonic() + delay
        heapq.heappush(self._heap, (due, next(self._order), item))

    @property
    def due_in(self) -> float:
        """Seconds until an item is due; zero or less where one is; infinite without items."""
        return self._heap[0][0] - self._clock.monotonic() if self._heap else math.inf

    def pop(self) -> _Item:
        """Removes and returns the item that is due first."""
        return heapq.heappop(self._heap)[2]

    def make_due(self, matches: Callable[[_Item], bool]) -> None:
        """Makes the items for which `matches` returns True due now."""
        now = self._clock.monotonic()
        self._heap = [
            (min(due, now) if matches(item) else due, order, item)
            for due, order, item in self._heap
        ]
        heapq.heapify(self._heap)


def no_later(theirs: datetime, ours: float) -> datetime:
    """Returns another clock's time; or ours (epoch seconds) if that is up to 15 minutes behind.

    A reader that starts at the earlier time misses nothing, while one that starts in the future
    waits. A clock that is further behind is simply wrong.
    """
    here = datetime.fromtimestamp(int(ours), UTC)
    return here if timedelta() < theirs - here <= _MOST_APART else theirs
