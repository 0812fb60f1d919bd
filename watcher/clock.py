"""Time, as an object that is handed in: tests and the simulation have one of their own."""

from __future__ import annotations

import time


class Clock:
    """The machine's own clock; seconds throughout."""

    def monotonic(self) -> float:
        """Never goes back; only differences mean something."""
        return time.monotonic()

    def time(self) -> float:
        """Epoch seconds by this machine, which may be wrong, and may jump."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Wait so long."""
        time.sleep(seconds)


CLOCK = Clock()
"""The one that everything goes by where no other is handed in."""
