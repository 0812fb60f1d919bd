"""What shows a watch's figures while it goes on, a few times a second."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from watcher.clock import CLOCK, Clock
from watcher.engine.figures import Display, Snapshot

_SHOW_SECONDS = 0.2


class Displays:
    """Those of a watch."""

    def __init__(self, displays: Sequence[Display], clock: Clock = CLOCK) -> None:
        self._displays = displays
        self._clock = clock
        self._due = 0.0

    def show(self, figures: Callable[[], Snapshot], *, at_once: bool) -> None:
        """Have them show these, if it is time."""
        now = self._clock.monotonic()
        if not self._displays or not (at_once or now >= self._due):
            return
        self._due = now + _SHOW_SECONDS
        snapshot = figures()
        for display in self._displays:
            display.show(snapshot)
