"""A watch's signs of life, where another process sees them while the watch itself stands still."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, MutableSequence
from contextlib import contextmanager
from enum import IntEnum
from multiprocessing.sharedctypes import RawArray
from typing import NamedTuple

from watcher.clock import CLOCK, Clock

_GOT_ON, _TRIED, _DOING, _ENDING, _SIZE = range(5)


class Phase(IntEnum):
    """What the watch's loop is doing."""

    STARTING = 0
    STANDING_BY = 1
    WATCHING = 2
    READING_ITEMS = 3
    DELIVERING = 4
    SAVING = 5


class HeartbeatState(NamedTuple):
    """What is to be seen; times are monotonic seconds, the same for all processes of a machine."""

    got_on: float
    """When something was last done."""
    tried: float
    """When something that goes on was last attempted: the same or later."""
    doing: Phase
    ending: float
    """When it was told to end, which takes its own time; 0: it was not."""

    def not_before(self, moment: float) -> HeartbeatState:
        """The same, for who could see nothing before this moment."""
        return self._replace(got_on=max(self.got_on, moment), tried=max(self.tried, moment))


class Heartbeat:
    """Written by the one thread of the loop, a few numbers at a time: it costs no message."""

    def __init__(
        self, cells: MutableSequence[float] | memoryview[float] | None = None, clock: Clock = CLOCK
    ) -> None:
        self._cells = [0.0] * _SIZE if cells is None else cells
        self._clock = clock
        self.beat()

    @staticmethod
    def shared() -> Heartbeat:
        """One that child processes see, too."""
        try:
            return Heartbeat(RawArray("d", _SIZE))
        except OSError:  # no place for a file: then they are forked, too
            return Heartbeat(memoryview(mmap.mmap(-1, 8 * _SIZE)).cast("d"))

    def beat(self) -> None:
        """The loop has got on."""
        self._cells[_GOT_ON] = self._cells[_TRIED] = self._clock.monotonic()

    def try_again(self) -> None:
        """The loop has not got on, as far as it knows, but does attempt to."""
        self._cells[_TRIED] = self._clock.monotonic()

    def begin(self, doing: Phase) -> Phase:
        """From now on the loop does this; answers what it did before."""
        before = Phase(int(self._cells[_DOING]))
        self._cells[_DOING] = float(doing)
        self.try_again()
        return before

    def resume(self, doing: Phase) -> None:
        """It does this again, which it had begun before."""
        self._cells[_DOING] = float(doing)

    def end(self) -> None:
        """The watch is to end. Safe in a handler."""
        self._cells[_ENDING] = self._cells[_ENDING] or self._clock.monotonic()

    @contextmanager
    def during(self, doing: Phase) -> Iterator[None]:
        """In here the loop does this, and after it what it did before."""
        before = self.begin(doing)
        try:
            yield
        finally:
            self.resume(before)

    def look(self) -> HeartbeatState:
        """What is to be seen now."""
        got_on, tried, doing, ending = self._cells
        return HeartbeatState(got_on, tried, Phase(int(doing)), ending)
