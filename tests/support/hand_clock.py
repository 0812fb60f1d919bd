"""A clock that stands until a test moves it."""

from __future__ import annotations

from tests.support.times import NOON
from watcher.clock import Clock


class HandClock(Clock):
    """Sleeping moves it, too."""

    def __init__(self) -> None:
        self.passed = 0.0
        self.slept = 0.0
        """For how many seconds more the machine was suspended."""

    def monotonic(self) -> float:
        return 100.0 + self.passed

    def boottime(self) -> float:
        return self.monotonic() + self.slept

    def time(self) -> float:
        return NOON.timestamp() + self.passed + self.slept

    def sleep(self, seconds: float) -> None:
        self.passed += seconds
