"""A watch's signs of life, visible to another process, and the problems that they show."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, MutableSequence
from contextlib import contextmanager
from enum import IntEnum
from multiprocessing.sharedctypes import RawArray
from typing import NamedTuple

from watcher.clock import CLOCK, Clock
from watcher.observability.watch_stats import WatchStats

LATE_SECONDS = 60.0
"""The longest time of a read, a delivery or a save: a few timeouts in a row."""
_PROGRESSED_AT, _TRIED_AT, _PHASE, _STOPPING, _SIZE = range(5)


class Phase(IntEnum):
    """The current activity of the loop."""

    STARTING = 0
    STANDING_BY = 1
    WATCHING = 2
    READING_ITEMS = 3
    DELIVERING = 4
    SAVING = 5


class Heartbeat:
    """Written by the loop's thread, a few numbers at a time, without a message."""

    def __init__(
        self, cells: MutableSequence[float] | memoryview[float] | None = None, clock: Clock = CLOCK
    ) -> None:
        self._cells = [0.0] * _SIZE if cells is None else cells
        self._clock = clock
        self.beat()

    @staticmethod
    def shared() -> Heartbeat:
        """Returns a heartbeat that child processes can read."""
        try:
            return Heartbeat(RawArray("d", _SIZE))
        except OSError:  # no room for a file; the processes are then forked
            return Heartbeat(memoryview(mmap.mmap(-1, 8 * _SIZE)).cast("d"))

    def beat(self) -> None:
        """Notes a turn of the loop."""
        self._cells[_PROGRESSED_AT] = self._cells[_TRIED_AT] = self._clock.monotonic()

    def try_again(self) -> None:
        """Notes an attempt within a turn of the loop."""
        self._cells[_TRIED_AT] = self._clock.monotonic()

    def enter(self, phase: Phase) -> Phase:
        """Enters a phase; returns the previous one."""
        before, self._cells[_PHASE] = self.phase, float(phase)
        self.try_again()
        return before

    @contextmanager
    def during(self, phase: Phase) -> Iterator[None]:
        """Enters a phase for the block, and returns to the previous one at its end."""
        before = self.enter(phase)
        try:
            yield
        finally:
            self._cells[_PHASE] = float(before)

    def stop(self) -> None:
        """Notes that the watch has to stop. Safe in a signal handler."""
        self._cells[_STOPPING] = 1.0

    @property
    def phase(self) -> Phase:
        """The current activity."""
        return Phase(int(self._cells[_PHASE]))

    @property
    def is_stopping(self) -> bool:
        """True once the watch has to stop."""
        return bool(self._cells[_STOPPING])

    @property
    def seconds_since_progress(self) -> float:
        """The seconds since the loop's last turn."""
        return self._clock.monotonic() - self._cells[_PROGRESSED_AT]

    @property
    def seconds_since_try(self) -> float:
        """The seconds since the last attempt, also of a retry: after the last turn."""
        return self._clock.monotonic() - self._cells[_TRIED_AT]


_PHASE_NAMES = (
    "the start",
    "standing by",
    "the watch's loop",
    "a read of the table's items",
    "a handler",
    "a save of the positions",
)
_STANDS_BY = "standing by: another watch has the lease"


class ProbeAnswers(NamedTuple):
    """The problems that each probe reports, one line each; empty without problems."""

    live: list[str]
    """Problems that a restart may solve."""
    ready: list[str]
    remark: str = ""
    """The work of a ready watch that does not deliver: standing by."""


def assess(stats: WatchStats, heartbeat: Heartbeat) -> ProbeAnswers:
    """Returns the problems that a watch's latest statistics and heartbeat show."""
    health, live = stats.health, list(stats.health.stuck)
    if heartbeat.is_stopping:
        return ProbeAnswers([], ["the watch is ending"])
    phase, name = heartbeat.phase, _PHASE_NAMES[heartbeat.phase]
    if phase is Phase.DELIVERING and stats.handlers:
        name += f" ({' or '.join(stats.handlers)})"
    if (seconds := heartbeat.seconds_since_try) > LATE_SECONDS:
        live.insert(0, f"{name} has stood for {seconds:.0f} s")
    if phase is Phase.STANDING_BY:
        if health.trouble:
            return ProbeAnswers(live, [*live, f"can't stand by: {health.trouble}"])
        return ProbeAnswers(live, live, _STANDS_BY)
    ready = list(live)
    if not live and (seconds := heartbeat.seconds_since_progress) > LATE_SECONDS:
        ready.append(f"{name} is being retried, for {seconds:.0f} s")
    return ProbeAnswers(live, [*ready, *health.unready])
