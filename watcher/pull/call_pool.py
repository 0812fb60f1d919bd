"""Calls that wait for an answer each: a few one after the other, more of them side by side."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from watcher import process_start
from watcher.pull.timing import TIMING

_THREADS = 32

_Answer = TypeVar("_Answer")
_Calls = SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None]


class _Thread(threading.Thread):
    """One that makes calls, told from the program's own."""


class CallPool:
    """Makes calls in `most` threads once there are several at a time; without `threads`, never.

    They keep no program from its end, as an executor's do: a read that drips takes half a minute.
    Nor from forking: those that have nothing to do end before, and come again with the next calls.
    """

    def __init__(self, *, threads: bool = True, most: int = _THREADS) -> None:
        self.may_have_threads = threads
        self._most = most
        self._threads: list[threading.Thread] = []
        self._calls: _Calls = SimpleQueue()
        self._idle = threading.Semaphore(0)
        process_start.before_fork(self._rest)

    def start(self, calls: Sequence[Callable[[], _Answer]], few: int = 1) -> list[Future[_Answer]]:
        """Starts the calls: in threads if there are more than `few`; returns their answers."""
        if self.may_have_threads and (len(calls) > few or self._threads):
            return [self._given(call) for call in calls]
        return [_made(Future(), call) for call in calls]

    def close(self, *, wait: bool = True) -> None:
        """End the threads, as a process that forks others must not have any.

        With `wait`, once the calls that have begun are through.
        """
        with contextlib.suppress(Empty):
            while given := self._calls.get_nowait():
                given[0].cancel()
        threads = self._told()
        for thread in threads if wait else ():
            thread.join()

    def _rest(self) -> None:
        others = set(threading.enumerate()) - {threading.current_thread()}
        # Another thread of the program's may be giving them a call just now.
        if self._threads and self._calls.empty() and all(isinstance(o, _Thread) for o in others):
            until = time.monotonic() + TIMING.idle_threads_end_seconds
            for thread in self._told():
                thread.join(max(0.0, until - time.monotonic()))

    def _told(self) -> list[threading.Thread]:
        """Tells all threads to end when the calls they have are through; returns them."""
        threads, self._threads = self._threads, []
        for _ in threads:
            self._calls.put(None)
        self._calls, self._idle = SimpleQueue(), threading.Semaphore(0)
        return threads

    def _given(self, call: Callable[[], _Answer]) -> Future[_Answer]:
        future: Future[_Answer] = Future()
        self._calls.put((future, call))
        if not self._idle.acquire(blocking=False) and len(self._threads) < self._most:
            theirs = self._calls, self._idle
            thread = _Thread(target=_work, args=theirs, name="watcher", daemon=True)
            self._threads.append(thread)
            thread.start()
        return future


def _work(calls: _Calls, idle: threading.Semaphore) -> None:
    while (given := calls.get()) is not None:
        if given[0].set_running_or_notify_cancel():
            future, call = given
            _made(future, call)
            del future, call
        del given  # an answer is its caller's alone
        idle.release()


def _made(future: Future[_Answer], call: Callable[[], _Answer]) -> Future[_Answer]:
    try:
        future.set_result(call())
    except Exception as error:
        future.set_exception(error)
    return future
