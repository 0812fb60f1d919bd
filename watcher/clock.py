"""Time as an object, so that tests and the simulation can pass their own."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial

# AWS accepts no signature from a clock that is further off.
_MOST_APART = timedelta(minutes=15)


class Clock:
    """The machine's clock; every value is in seconds."""

    # A bare function, not a method of ours: it is called once a record.
    monotonic: Callable[[], float] = staticmethod(time.monotonic)
    """Never goes back; only differences have a meaning."""

    # On Linux, `monotonic` stands still while a laptop sleeps.
    boottime: Callable[[], float] = staticmethod(
        partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
    )
    """Works as `monotonic`, and goes on while the machine sleeps."""

    def time(self) -> float:
        """Returns epoch seconds by this machine, which may be wrong, and may jump."""
        return time.time()

    def now(self) -> datetime:
        """Returns the time by this machine as an aware datetime."""
        return datetime.fromtimestamp(self.time(), UTC)

    def sleep(self, seconds: float) -> None:
        """Waits so long."""
        time.sleep(seconds)


CLOCK = Clock()
"""The default clock."""


def no_later(theirs: datetime, ours: float) -> datetime:
    """Returns another clock's time; or ours (epoch seconds), where that is up to 15 minutes behind.

    A reader that starts at the earlier time misses nothing, while one that starts in the future
    waits. A clock that is further behind is just wrong.
    """
    here = datetime.fromtimestamp(int(ours), UTC)
    return here if timedelta() < theirs - here <= _MOST_APART else theirs
