"""Stops a run: current work may finish within a time limit."""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from functools import partial
from types import FrameType
from typing import cast

from watcher.clock import CLOCK, Clock


@dataclass(frozen=True, kw_only=True)
class ShutdownTiming:
    """The time limits of a stop."""

    stop_seconds: float = 5.0
    """The default of `--stop-timeout`; docker kills after 10 s, systemd after 90."""
    last_step_seconds: float = 0.5
    """The time for each further step after the timeout, such as a handler's close.

    A call of the service, which no handler waits for, gets no more from the start.
    """
    shortest_alarm_seconds: float = 0.001
    """The shortest alarm: 0 would switch it off."""


SHUTDOWN_TIMING = ShutdownTiming()

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


_Handler = Callable[[int, FrameType | None], object] | int | None


class Overdue(KeyboardInterrupt):
    """Raised in the middle of work that took longer than the stop's time limit."""

    def __init__(
        self, text: str = "Interrupted: a handler or a write took longer than --stop-timeout"
    ) -> None:
        """`text` is for the log; it is empty where another line names the work."""
        super().__init__(text)


class ShutdownState(Enum):
    """The progress of a run's end."""

    RUNNING = "running"
    DRAINING = "draining"
    """A stop was requested: work in hand may finish, and nothing new starts."""
    OVERDUE = "overdue"
    """The time limit has passed: remaining work is interrupted."""


class Shutdown:
    """The one object that knows whether a run has to stop, and how much time it has left.

    `request` stops the run; so do a signal (`handle_signals`) and `stop_requested` (checked by
    `must_stop`). After that the run has `timeout` seconds.
    """

    def __init__(
        self,
        timeout: float = math.inf,
        *,
        stop_requested: Callable[[], bool] = lambda: False,
        clock: Clock = CLOCK,
    ) -> None:
        self.timeout = timeout
        self.signal = 0
        """The signal that requested the stop; 0: none."""
        self.interruptible = False
        """True while the main thread's work may be interrupted: a handler's, a write."""
        self.asks_service = False
        """True while that work is a call of the service, which no handler waits for."""
        self._writes_line = False
        self._stop_requested = stop_requested
        self._clock = clock
        self._requested_at: float | None = None
        self._thread = threading.get_ident()

    @property
    def state(self) -> ShutdownState:
        """The progress of the end."""
        if self._requested_at is None:
            return ShutdownState.RUNNING
        return ShutdownState.DRAINING if self.seconds_left > 0 else ShutdownState.OVERDUE

    @property
    def requested(self) -> bool:
        """True once the run has to stop."""
        return self._requested_at is not None  # asked for every record: without `state`

    def request(self) -> None:
        """Requests the stop. Safe in a signal handler."""
        if self._requested_at is None:
            self._requested_at = self._clock.monotonic()

    def must_stop(self) -> bool:
        """Checks `stop_requested`; returns True once the run has to stop.

        Call it several times a second.
        """
        if not self.requested and self._stop_requested():
            self.request()
        return self.requested

    @property
    def seconds_left(self) -> float:
        """The seconds that the run may go on; all of `timeout` before a request."""
        if self._requested_at is None:
            return self.timeout
        return self._requested_at + self.timeout - self._clock.monotonic()

    @property
    def has_time_for_more(self) -> bool:
        """True while a further step may start: half of the time is for work in hand."""
        if self._requested_at is None:
            return True
        return self._clock.monotonic() - self._requested_at < self.timeout / 2

    # Interruptions

    @contextmanager
    def may_interrupt(self, allowed: bool = True) -> Iterator[None]:
        """Lets a signal interrupt the block; with `allowed=False`, shields it.

        Only the main thread gets signals; in others this changes nothing.
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
        """Lets a call of the service be interrupted half a second after a stop request."""
        with self.may_interrupt():
            self.asks_service = True
            try:
                yield
            finally:
                self.asks_service = False

    @contextmanager
    def writing_line(self) -> Iterator[None]:
        """Lets a log line without a reader be interrupted: the line is lost, but not the stop."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self._writes_line = True
        try:
            yield
        finally:
            self._writes_line = False

    def interrupt(self) -> None:
        """Raises Overdue in interruptible work; for a signal handler."""
        if self.asks_service and self.interruptible:
            raise Overdue("The service had not answered by then")
        if self.interruptible or self._writes_line:
            raise Overdue

    # Signals

    @contextmanager
    def handle_signals(
        self,
        on_request: Callable[[], object],
        at_once: Iterable[Callable[[], object]] = (),
        *,
        calls_host: bool = True,
    ) -> Iterator[None]:
        """Stops the run on the first SIGINT, SIGTERM or SIGHUP, and breaks it off on the second.

        The first calls `on_request`; work that is still running after the time limit is
        interrupted. The second calls `at_once`, and raises KeyboardInterrupt; within
        `ending_process` it ends the process. A host program's own handler is called at the end of
        the run, unless `calls_host` is False; a daemonic process exits there. An ignored signal
        (nohup) stays ignored. Only the main thread can do any of this.
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
            if calls_host and signals.after is not None:
                signals.after()


class _Signals:
    """This process's signal handlers during a run, and the alarm of its time limits."""

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
        """A host program's handler for the signal that stopped the run; called at its end."""

    def install(self) -> None:
        """Installs the handlers."""
        for each in stopping_signals():
            self._before[each] = signal.signal(each, self._on_signal)

    def restore(self) -> None:
        """Restores the previous handlers."""
        if signal.SIGALRM in self._before:
            signal.setitimer(signal.ITIMER_REAL, 0)
        for each, handler in self._before.items():
            signal.signal(each, handler)
        self._before.clear()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        host_handler = self._handler_of_host(number)
        if self._run.signal:
            for each in self._at_once:
                each()
            if _ends_process:
                os._exit(128 + number)
            self.restore()
            raise KeyboardInterrupt
        self._run.signal = number
        if host_handler is not None:
            self.after = partial(host_handler, number, None)
        self._stop()

    def _handler_of_host(self, number: int) -> Callable[[int, FrameType | None], object] | None:
        """Returns a host program's handler for a signal; None for Python's own."""
        import multiprocessing  # not for help: it takes a tenth of that start

        handler = self._before.get(signal.Signals(number))
        if handler is signal.SIG_DFL and multiprocessing.current_process().daemon:
            return _exit_daemon
        is_own = callable(handler) and handler is not signal.default_int_handler
        return cast("Callable[[int, FrameType | None], object]", handler) if is_own else None

    def _stop(self) -> None:
        self._on_request()
        if self._run.timeout < math.inf:
            is_early = (
                self._run.asks_service and self._run.timeout > SHUTDOWN_TIMING.last_step_seconds
            )
            self._set_alarm(SHUTDOWN_TIMING.last_step_seconds if is_early else self._run.timeout)

    def _set_alarm(self, seconds: float) -> None:
        handler = signal.signal(signal.SIGALRM, self._on_alarm)
        self._before.setdefault(signal.SIGALRM, handler)
        signal.setitimer(
            signal.ITIMER_REAL,
            max(seconds, SHUTDOWN_TIMING.shortest_alarm_seconds),
            SHUTDOWN_TIMING.last_step_seconds,
        )

    def _on_alarm(self, number: int, frame: FrameType | None) -> None:
        run = self._run
        if run.state is ShutdownState.DRAINING and not run.asks_service:
            self._set_alarm(run.seconds_left)  # it no longer calls the service
        else:
            run.interrupt()


def _exit_daemon(number: int, frame: FrameType | None) -> None:
    """Exits: a `multiprocessing.Pool` that terminates its processes waits until they have ended."""
    sys.exit(128 + number)


_ends_process = False


@contextmanager
def ending_process() -> Iterator[None]:
    """Makes a second signal end the process: for a program that only runs a watch."""
    global _ends_process
    before, _ends_process = _ends_process, True
    try:
        yield
    finally:
        _ends_process = before


_in_charge = Shutdown()


def in_charge() -> Shutdown:
    """Returns the run whose signals this process handles, or handled last.

    Log lines outside of a run block on a slow reader, until a stop is requested.
    """
    return _in_charge


def exit_status(number: int, *, ends_by_itself: bool) -> int:
    """Returns the exit status of a program that a signal stopped; `number` 0 is none.

    A run without an end of its own has done its work. One that would have ended by itself has not:
    like a shell's, its status is 128 plus the signal's number.
    """
    return 128 + number if number and ends_by_itself else 0


def stopping_signals() -> list[signal.Signals]:
    """Returns the signals that request a stop, without ignored ones."""
    return [each for each in _SIGNALS if signal.getsignal(each) != signal.SIG_IGN]
