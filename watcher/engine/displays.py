"""Shows a watch's figures a few times a second."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from watcher.clock import CLOCK, Clock
from watcher.engine.figures import Display, Snapshot

_SECONDS = 0.2


class Displays:
    """What is shown the figures, which `snapshot` gives."""

    def __init__(
        self,
        displays: Sequence[Display],
        snapshot: Callable[[], Snapshot],
        clock: Clock = CLOCK,
    ) -> None:
        self._displays = displays
        self._snapshot = snapshot
        self._clock = clock
        self._due = 0.0

    def show(self, *, at_once: bool = False) -> None:
        """Show how it stands, where that is due."""
        now = self._clock.monotonic()
        if not self._displays or not (at_once or now >= self._due):
            return
        self._due = now + _SECONDS
        snapshot = self._snapshot()
        for display in self._displays:
            display.show(snapshot)
