"""Stops a run: the current work may finish, within a time limit."""

from __future__ import annotations

import math
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import Enum
from functools import partial
from types import FrameType
from typing import cast

from watcher.clock import CLOCK, Clock

STOP_SECONDS = 5.0
"""Where nobody says otherwise; docker's own patience ends after 10 s, systemd's after 90."""

# Once the time is up, each further step of the stop (a handler's close) has so long. A request to
# the service, which nobody's work waits for, has no more than that from the beginning.
_LAST_STEP_SECONDS = 0.5
# A timer of the system's holds no more than some years.
_LONGEST_ALARM_SECONDS = 86_400.0
_SHORTEST_ALARM_SECONDS = 0.001  # 0 would switch it off
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


_Handler = Callable[[int, FrameType | None], object] | int | None


class Overdue(KeyboardInterrupt):
    """Work took longer than the run had left; raised in the middle of it."""


class ShutdownState(Enum):
    """How far the end of a run is."""

    RUNNING = "running"
    DRAINING = "draining"
    """The run was told to stop: what is in hand may finish, and nothing new is taken in."""
    OVERDUE = "overdue"
    """The time for that is over: what is still at work is interrupted."""


class Shutdown:
    """The one object that knows whether a run is to stop, and how much time is left for it.

    `request` stops the run; so do a signal (`handle_signals`), `stop_requested`, which `poll` asks,
    and `max_seconds` from now on. From the stop on the run has `timeout` seconds.
    """

    def __init__(
        self,
        timeout: float = math.inf,
        *,
        stop_requested: Callable[[], bool] = lambda: False,
        max_seconds: float | None = None,
        clock: Clock = CLOCK,
    ) -> None:
        self.timeout = timeout
        self.signal = 0
        """The signal that has told it, if one has."""
        self.interruptible = False
        """True while the main thread does what may be interrupted: a handler's work, a write."""
        self.asks_service = False
        """True while that is a request to the service, which no handler waits for."""
        self._writes_line = False
        self._stop_requested = stop_requested
        self._clock = clock
        self._ends_at = math.inf if max_seconds is None else clock.monotonic() + max_seconds
        self._requested_at: float | None = None
        self._thread = threading.get_ident()

    @property
    def state(self) -> ShutdownState:
        """How far the end is."""
        if self._requested_at is None:
            return ShutdownState.RUNNING
        return ShutdownState.DRAINING if self.seconds_left > 0 else ShutdownState.OVERDUE

    @property
    def requested(self) -> bool:
        """True once the run has to stop."""
        return self.state is not ShutdownState.RUNNING

    def request(self) -> None:
        """Tells the run to stop. Safe in a signal handler."""
        if self._requested_at is None:
            self._requested_at = self._clock.monotonic()

    def poll(self) -> bool:
        """Ask `stop_requested` and the clock, several times a second; True once it is to stop."""
        if not self.requested and (self._stop_requested() or self.seconds_to_end <= 0):
            self.request()
        return self.requested

    @property
    def seconds_to_end(self) -> float:
        """How long until the run stops by itself, as `max_seconds` says."""
        return self._ends_at - self._clock.monotonic()

    @property
    def seconds_left(self) -> float:
        """How long the run may go on; all of `timeout` as long as it was not told to stop."""
        if self._requested_at is None:
            return self.timeout
        return self._requested_at + self.timeout - self._clock.monotonic()

    @property
    def has_time_for_more(self) -> bool:
        """True while a further step may begin: half of the time is for what is at work already."""
        if self._requested_at is None:
            return True
        return self._clock.monotonic() - self._requested_at < self.timeout / 2

    # What may be interrupted

    @contextmanager
    def may_interrupt(self, allowed: bool = True) -> Iterator[None]:
        """Let a signal interrupt what is done in here; or, with `allowed=False`, shield it.

        Signals come to the main thread alone; in others this changes nothing.
        """
        if threading.get_ident() != self._thread:
            yield
            return
        before, self.interruptible = self.interruptible, allowed
        try:
            yield
        finally:
            self.interruptible = before

    @contextmanager
    def asking_service(self) -> Iterator[None]:
        """Let a request to the service be interrupted half a second after the stop began."""
        with self.may_interrupt():
            self.asks_service = True
            try:
                yield
            finally:
                self.asks_service = False

    @contextmanager
    def writing_line(self) -> Iterator[None]:
        """Let a log line be interrupted where nobody reads it: the line is lost, not the stop."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self._writes_line = True
        try:
            yield
        finally:
            self._writes_line = False

    def interrupt(self) -> None:
        """Raise Overdue in what may be interrupted; for a signal handler."""
        if self.interruptible or self._writes_line:
            raise Overdue

    # Signals

    @contextmanager
    def handle_signals(
        self, on_request: Callable[[], object], at_once: Iterable[Callable[[], object]] = ()
    ) -> Iterator[None]:
        """Stop on the first SIGINT, SIGTERM or SIGHUP, and break the run off on the second.

        The first calls `on_request`; what is at work when the time is up is interrupted. The second
        calls `at_once`, and raises KeyboardInterrupt; within `ending_process` it ends the process.
        A host program's own handler is called at the end of the run. A signal that is ignored
        (nohup) stays so. In another thread than the main one nothing of this can be had.
        """
        global _in_charge
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        _in_charge = self
        signals = _Signals(self, on_request, at_once)
        signals.install()
        try:
            yield
        finally:
            signals.restore()
            if signals.after is not None:
                signals.after()


class _Signals:
    """This process's signals while a run goes on, and the alarm that ends its patience."""

    def __init__(
        self,
        run: Shutdown,
        on_request: Callable[[], object],
        at_once: Iterable[Callable[[], object]],
    ) -> None:
        self._run = run
        self._on_request = on_request
        self._at_once = at_once
        self._before: dict[signal.Signals, _Handler] = {}
        self.after: Callable[[], object] | None = None
        """A host program's handler of the signal that stopped the run; called at its end."""

    def install(self) -> None:
        """Handle them from now on."""
        for each in stopping_signals():
            self._before[each] = signal.signal(each, self._on_signal)
        if self._run.seconds_to_end < math.inf:
            self._on_alarm(signal.SIGALRM, None)

    def restore(self) -> None:
        """Have them handled as before."""
        if signal.SIGALRM in self._before:
            signal.setitimer(signal.ITIMER_REAL, 0)
        for each, handler in self._before.items():
            signal.signal(each, handler)
        self._before.clear()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        of_host = self._handler_of_host(number)
        if self._run.signal:
            for each in self._at_once:
                each()
            if _ends_process:
                os._exit(128 + number)
            self.restore()
            raise KeyboardInterrupt
        self._run.signal = number
        if of_host is not None:
            self.after = partial(of_host, number, None)
        self._stop()

    def _handler_of_host(self, number: int) -> Callable[[int, FrameType | None], object] | None:
        """Returns the handler that a host program has for a signal; None for Python's own."""
        handler = self._before.get(signal.Signals(number))
        is_own = callable(handler) and handler is not signal.default_int_handler
        return cast("Callable[[int, FrameType | None], object]", handler) if is_own else None

    def _stop(self) -> None:
        self._on_request()
        if self._run.timeout < math.inf:
            is_early = self._run.asks_service and self._run.timeout > _LAST_STEP_SECONDS
            self._set_alarm(_LAST_STEP_SECONDS if is_early else self._run.timeout)

    def _set_alarm(self, seconds: float) -> None:
        handler = signal.signal(signal.SIGALRM, self._on_alarm)
        self._before.setdefault(signal.SIGALRM, handler)
        signal.setitimer(
            signal.ITIMER_REAL, max(seconds, _SHORTEST_ALARM_SECONDS), _LAST_STEP_SECONDS
        )

    def _on_alarm(self, number: int, frame: FrameType | None) -> None:
        run = self._run
        match run.state:
            case ShutdownState.RUNNING if run.seconds_to_end > 0:
                self._set_alarm(min(run.seconds_to_end, _LONGEST_ALARM_SECONDS))
            case ShutdownState.RUNNING:
                self._stop()
            case ShutdownState.DRAINING if not run.asks_service:  # by now it does something else
                self._set_alarm(run.seconds_left)
            case _:
                run.interrupt()


_ends_process = False


@contextmanager
def ending_process() -> Iterator[None]:
    """Has a second signal end the process: for a program that is nothing but its run."""
    global _ends_process
    before, _ends_process = _ends_process, True
    try:
        yield
    finally:
        _ends_process = before


_in_charge = Shutdown()


def in_charge() -> Shutdown:
    """Returns the run whose signals this process handles, or handled last.

    A program logs beside its runs: its lines wait for their reader until a run was told to stop.
    """
    return _in_charge


def exit_status(number: int, *, ends_by_itself: bool) -> int:
    """Returns the exit status of a program that a signal stopped in order; `number` 0 is none.

    A run that goes on until it is stopped has done its work. One that would have ended by itself
    has not: like a shell's, its status is 128 plus the signal's number.
    """
    return 128 + number if number and ends_by_itself else 0


def stopping_signals() -> list[signal.Signals]:
    """Returns those that ask a program to stop in order."""
    return [each for each in _SIGNALS if signal.getsignal(each) != signal.SIG_IGN]
