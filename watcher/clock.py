"""Time, as an object that is handed in: tests and the simulation have one of their own."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial

# AWS takes no signature by a clock that is further off.
_MOST_APART = timedelta(minutes=15)


class Clock:
    """The machine's own clock; seconds throughout."""

    # Not wrapped in a method of ours: it is asked once a record.
    monotonic: Callable[[], float] = staticmethod(time.monotonic)
    """Never goes back; only differences mean something."""

    # What `monotonic` is on Linux stands still while a laptop sleeps.
    boottime: Callable[[], float] = staticmethod(
        partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
    )
    """As `monotonic`, and goes on while the machine sleeps."""

    def time(self) -> float:
        """Epoch seconds by this machine, which may be wrong, and may jump."""
        return time.time()

    def now(self) -> datetime:
        """The same, as a datetime."""
        return datetime.fromtimestamp(self.time(), UTC)

    def sleep(self, seconds: float) -> None:
        """Wait so long."""
        time.sleep(seconds)


CLOCK = Clock()
"""The one that everything goes by where no other is handed in."""


def no_later(theirs: datetime, ours: float) -> datetime:
    """Another clock's time of now; or ours (epoch seconds), where that is minutes behind it.

    Of two that say when something began, the one behind leaves nothing out: whoever begins at a
    moment that is still to come waits for it. One that is hours behind is just wrong.
    """
    here = datetime.fromtimestamp(int(ours), UTC)
    return here if timedelta() < theirs - here <= _MOST_APART else theirs
