"""Stops a run: current work may finish within a time limit."""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType

from watcher.clock import CLOCK, Clock

STOP_SECONDS = 5.0
"""The default of `--stop-timeout`; docker kills after 10 s, systemd after 90."""
# The time for each further step after the timeout, such as a handler's close. A call of the
# service, which no handler waits for, gets no more from the start.
_LAST_STEP_SECONDS = 0.5
# The system's timer is limited to some years, and 0 would switch it off.
_LONGEST_ALARM_SECONDS = 86_400.0
_SHORTEST_ALARM_SECONDS = 0.001

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_Handler = Callable[[int, FrameType | None], object] | int | None


class Overdue(KeyboardInterrupt):
    """Raised in the middle of work that took longer than the stop's time limit."""

    def __init__(
        self, text: str = "Interrupted: a handler or a write took longer than --stop-timeout"
    ) -> None:
        super().__init__(text)


class Shutdown:
    """The one object that knows whether a run has to stop, and how much time it has left.

    `request` stops the run; so do a signal (`handle_signals`), and `stop_requested` (checked by
    `must_stop`). After that the run has `timeout` seconds.
    """

    def __init__(
        self,
        timeout: float = math.inf,
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
    def requested(self) -> bool:
        """True once the run has to stop."""
        return self._requested_at is not None

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
        try:
            yield
        finally:
            signals.restore()
            if calls_host:
                signals.pass_on()


class _Signals:
    """This process's signal handlers during a run, and the alarm of its time limit."""

    def __init__(
        self,
        run: Shutdown,
        on_request: Callable[[], object],
        at_once: Iterable[Callable[[], object]],
    ) -> None:
        self._run = run
        self._on_request = on_request
        self._at_once = at_once
        self._before: dict[int, _Handler] = {
            each: signal.signal(each, self._on_signal)
            for each in _SIGNALS
            if signal.getsignal(each) != signal.SIG_IGN
        }

    def restore(self) -> None:
        """Restores the previous handlers."""
        if signal.SIGALRM in self._before:
            signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def pass_on(self) -> None:
        """Calls a host program's own handler for the signal that has stopped the run."""
        handler = self._before.get(number := self._run.signal)
        if callable(handler) and handler is not signal.default_int_handler:
            handler(number, None)
        elif handler is signal.SIG_DFL:
            import multiprocessing  # not for help: it takes a tenth of that start

            # A `multiprocessing.Pool` that terminates its processes waits until they have ended.
            if multiprocessing.current_process().daemon:
                sys.exit(128 + number)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if not self._run.signal:
            self._run.signal = number
            self._on_request()
            if self._run.timeout < math.inf:
                self._before[signal.SIGALRM] = signal.signal(signal.SIGALRM, self._on_alarm)
                self._set_alarm()
            return
        for each in self._at_once:
            each()
        if _ends_process:
            from watcher import process_start  # not for help, as below

            process_start.kill_all()
            os._exit(128 + number)
        self.restore()
        raise KeyboardInterrupt

    def _set_alarm(self) -> None:
        seconds = min(self._run.seconds_left, _LONGEST_ALARM_SECONDS)
        if self._run.asks_service:
            seconds = min(seconds, _LAST_STEP_SECONDS)
        seconds = max(seconds, _SHORTEST_ALARM_SECONDS)
        signal.setitimer(signal.ITIMER_REAL, seconds, _LAST_STEP_SECONDS)

    def _on_alarm(self, number: int, frame: FrameType | None) -> None:
        if self._run.asks_service or self._run.seconds_left <= 0:
            self._run.interrupt()
        else:
            self._set_alarm()


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
