"""Several programs on one virtual clock: each has a thread, and only one of them runs at a time."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

from tests.simulation.scheduler import Life, Scheduler


class Seat:
    def __init__(self, turns: Turns, name: str, main: Callable[[Seat], None]) -> None:
        self.name = name
        self.paused_until = 0.0
        self.until = 0.0  # up to when it waits
        self.hears = False  # whether it waits for what comes through its pipes, too
        self.pipes_changed = False
        self.has_ended = False
        self.blocked: list[Callable[[], None]] = []
        self._turns = turns
        self._woken = False
        self._go = threading.Semaphore(0)
        self.thread = threading.Thread(target=self._run, args=(main,), name=name, daemon=True)
        self.thread.start()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._turns.scheduler, name)

    @property
    def now(self) -> float:
        return self._turns.scheduler.now

    @property
    def is_paused(self) -> bool:
        return self.now < self.paused_until

    def _run(self, main: Callable[[Seat], None]) -> None:
        self._go.acquire()
        try:
            main(self)
        except BaseException as error:
            self._turns.errors.append(error)
        self.has_ended = True
        self._turns.back.release()

    def step(self, until: float) -> bool:
        """Wait for what comes through its pipes; False where nothing did by then."""
        return self._wait(until, hears=True)

    def run_until(self, moment: float) -> None:
        while self.now < moment and not self._turns.are_over:
            self._wait(moment, hears=False)

    def _wait(self, until: float, *, hears: bool) -> bool:
        self.until, self.hears = until, hears
        self._turns.back.release()
        self._go.acquire()
        return self._woken

    def due(self) -> float:
        at = self.now if self.hears and self.pipes_changed else self.until
        return max(at, self.paused_until)

    def resume(self) -> None:
        self._woken = self.hears and self.pipes_changed
        self._go.release()
        self._turns.back.acquire()


class Turns:
    """Who runs when, by the scheduler's chances alone."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.back = threading.Semaphore(0)
        self.errors: list[BaseException] = []
        self.are_over = False  # whether nobody is to wait for anything any more
        self._seats: list[Seat] = []
        self._rng = random.Random(f"turns {scheduler.rng.random()}")

    def add(self, name: str, main: Callable[[Seat], None]) -> Seat:
        self._seats.append(Seat(self, name, main))
        return self._seats[-1]

    def run(self, is_over: Callable[[], bool]) -> None:
        scheduler = self.scheduler
        while not (is_over() or self.errors):
            self._tell()
            seats = [seat for seat in self._seats if not seat.has_ended]
            self._rng.shuffle(seats)
            first = min(seats, key=Seat.due)
            if not scheduler.step(first.due()):
                first.resume()

    def _tell(self) -> None:
        if self.scheduler.pipes_changed:
            self.scheduler.pipes_changed = False
            for seat in self._seats:
                seat.pipes_changed = True

    def end(self) -> None:
        self.are_over = True
        for seat in self._seats:
            while not seat.has_ended:
                seat.resume()
            seat.thread.join()


class SeatedLife(Life):
    """One run of a program in its seat; its clock is wrong, and goes at a speed of its own."""

    def __init__(self, seat: Seat, skew: float, rate: float) -> None:
        super().__init__(seat)  # type: ignore[arg-type]
        self._seat = seat
        self._own_skew = skew
        self._rate = rate

    def monotonic(self) -> float:
        return super().monotonic() * self._rate

    def time(self) -> float:
        return super().time() + self._own_skew

    def sleep(self, seconds: float) -> None:
        self.check()
        self._seat.run_until(self._seat.now + seconds / self._rate)
        self.check()
