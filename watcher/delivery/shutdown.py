"""How a run is ended by a signal: what is at work may finish, but not for ever."""

from __future__ import annotations

import math
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType

from watcher.clock import CLOCK, Clock

STOP_SECONDS = 5.0
"""Where nobody says otherwise; docker's own patience ends after 10 s, systemd's after 90."""

# Once the time is up, each further thing that the end calls (an observer's close) has so long.
_AFTERWARDS_SECONDS = 0.5
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Overdue(KeyboardInterrupt):
    """What is at work takes longer than the run has left."""


class Saying:
    """A line for people being written: where it takes too long it is broken off, and left out."""

    under_way = False
    told_to_end = False
    """Whether a signal has asked the program for its end: then no line is waited for any more."""

    def __enter__(self) -> None:
        Saying.under_way = threading.current_thread() is threading.main_thread()

    def __exit__(self, *error: object) -> None:
        Saying.under_way = False


class Shutdown:
    """How much time is left to a run that was told to end: `timeout` seconds from then on.

    It is told by a call of `begin`, or by `asked`, which is looked at now and then (`look`).
    """

    def __init__(
        self,
        timeout: float = math.inf,
        clock: Clock = CLOCK,
        asked: Callable[[], bool] = lambda: False,
    ) -> None:
        self.timeout = timeout
        self.has_begun = False
        self._asked = asked
        self.signal = 0
        """The signal that it was told by, if it was one."""
        self.at_work = False
        """Whether what the main thread does may be broken off: an observer's work, a write."""
        self.only_asks = False
        """Whether it is a question to the service, which nobody's work waits for."""
        self._clock = clock
        self._began_at = 0.0
        self._thread = threading.get_ident()

    def begin(self) -> None:
        """The run is to end. Safe in a signal handler."""
        if not self.has_begun:
            self._began_at = self._clock.monotonic()
            self.has_begun = True

    def look(self) -> bool:
        """Whether the run is to end; to be called several times a second."""
        if not self.has_begun and self._asked():
            self.begin()
        return self.has_begun

    def is_late(self) -> bool:
        """Whether nothing more is to be begun: half of the time is for what is at work already."""
        return self.has_begun and self._clock.monotonic() - self._began_at >= self.timeout / 2

    @property
    def left(self) -> float:
        """How many seconds are left; all of them as long as it has not begun."""
        began = self._began_at if self.has_begun else self._clock.monotonic()
        return began + self.timeout - self._clock.monotonic()

    @contextmanager
    def working(self, at_work: bool = True) -> Iterator[None]:
        """What is done in here may be broken off; or may not, within something that may.

        By a signal, which comes to the one thread that waits for it.
        """
        if threading.get_ident() != self._thread:
            yield
            return
        before, self.at_work = self.at_work, at_work
        try:
            yield
        finally:
            self.at_work = before

    @contextmanager
    def asking(self) -> Iterator[None]:
        """What is done in here may be broken off half a second after the end has begun."""
        with self.working():
            self.only_asks = True
            try:
                yield
            finally:
                self.only_asks = False

    def break_off(self) -> None:
        """Raise Overdue in what may be broken off; for the handler of a signal."""
        if self.at_work or Saying.under_way:
            raise Overdue


@contextmanager
def ended_by_signals(
    ending: Shutdown, stop: Callable[[], object], at_once: Iterable[Callable[[], object]] = ()
) -> Iterator[None]:
    """The first SIGINT, SIGTERM or SIGHUP calls `stop`, the second ends the process at once.

    What is still at work when the time is up is broken off. An ignored SIGHUP (nohup) stays so.
    In another thread than the main one nothing of this can be had.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ends = False

    def end(number: int, frame: FrameType | None) -> None:
        nonlocal ends
        if ends:
            for each in at_once:
                each()
            os._exit(128 + number)
        ends = Saying.told_to_end = True
        ending.signal = number
        stop()
        if ending.timeout < math.inf:
            before[signal.SIGALRM] = signal.signal(signal.SIGALRM, break_off)
            asks = ending.only_asks and ending.timeout > _AFTERWARDS_SECONDS
            first = _AFTERWARDS_SECONDS if asks else ending.timeout
            signal.setitimer(signal.ITIMER_REAL, first, _AFTERWARDS_SECONDS)

    def break_off(number: int, frame: FrameType | None) -> None:
        if not ending.only_asks and ending.left > 0:  # by now it does something else
            signal.setitimer(signal.ITIMER_REAL, ending.left, _AFTERWARDS_SECONDS)
        else:
            ending.break_off()

    before = {number: signal.signal(number, end) for number in stopping_signals()}
    try:
        yield
    finally:
        if signal.SIGALRM in before:
            signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


def stopping_signals() -> list[signal.Signals]:
    """Those that ask a program to end in order."""
    return [
        each
        for each in _SIGNALS
        if each != signal.SIGHUP or signal.getsignal(each) != signal.SIG_IGN
    ]
