"""Threads that a test can wait for, at a gate that it opens record by record: no clock decides."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

from tests.support.hand_clock import HandClock
from tests.support.wire import FIRST
from watcher.delivery.concurrent import HandlerPool
from watcher.records.record import Record

SECONDS = 30.0


class Gate:
    """A handler whose records wait until a test lets them through."""

    def __init__(self) -> None:
        self.lock = threading.Condition()
        self.begun: list[int] = []
        self.done: list[int] = []
        self.pool: WatchedPool | None = None
        self._opened: set[int] = set()
        self._here: list[int] = []

    def __call__(self, record: Record) -> None:
        number = int(record.sequence_number) - FIRST
        with self.lock:
            self.begun.append(number)
            self._here.append(number)
            self.lock.notify_all()
            assert self.lock.wait_for(lambda: self._is_open(number), SECONDS)
            self._here.remove(number)
            self.done.append(number)
            self.lock.notify_all()

    def _is_open(self, number: int) -> bool:
        return number in self._opened or -1 in self._opened

    @property
    def standing(self) -> int:
        """How many are held up."""
        with self.lock:
            return sum(not self._is_open(number) for number in self._here)

    def open(self, *numbers: int) -> None:
        """Let these through (-1: all)."""
        with self.lock:
            self._opened.update(numbers)
            self.lock.notify_all()

    def let(self, *numbers: int) -> Callable[[], None]:
        """A step: these may pass (-1: all), and have passed."""

        def step() -> None:
            self.open(*numbers)
            with self.lock:
                wanted = {number for number in numbers if number >= 0}
                assert self.lock.wait_for(lambda: wanted <= {*self.done}, SECONDS)
            self._settle()

        return step

    def begins(self, *numbers: int) -> Callable[[], None]:
        """A step: these, and none else, have been begun."""

        def step() -> None:
            with self.lock:
                assert self.lock.wait_for(lambda: {*numbers} <= {*self.begun}, SECONDS)
            self._settle()
            assert sorted(self.begun) == sorted(numbers)

        return step

    def _settle(self) -> None:
        if self.pool is not None:
            self.pool.settle()


class WatchedPool(HandlerPool):
    """Threads of which one can tell that each has no work, or stands at the gate."""

    def __init__(self, count: int, gate: Gate | None = None) -> None:
        super().__init__(count)
        self._gate = gate
        self._count = threading.Lock()
        self._given = self._begun_works = self._ended = 0
        if gate is not None:
            gate.pool = self

    def submit(self, work: Callable[[], Iterator[None]]) -> None:
        with self._count:
            self._given += 1
        super().submit(partial(self._counted, work))

    def _counted(self, work: Callable[[], Iterator[None]]) -> Iterator[None]:
        with self._count:
            self._begun_works += 1
        try:
            yield from work()
        finally:
            with self._count:
                self._ended += 1

    def settle(self) -> None:
        """Wait until nothing goes on by itself."""
        until = time.monotonic() + SECONDS
        while not self._is_at_rest():
            assert time.monotonic() < until
            time.sleep(0.001)

    def _is_at_rest(self) -> bool:
        # What stands goes on only where the test says so; what does not may go on between these.
        standing = 0 if self._gate is None else self._gate.standing
        with self._count:
            running, waiting = self._begun_works - self._ended, self._given - self._begun_works
        return not self.is_open or (running == standing and (not waiting or running == self.size))


class ThreadsClock(HandClock):
    """Threads have a moment while it is moved, or all the time that they need."""

    def __init__(self, pool: WatchedPool | None = None) -> None:
        super().__init__()
        self._pool = pool

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        if self._pool is not None and threading.current_thread() is threading.main_thread():
            self._pool.settle()
        else:
            time.sleep(0.002)
