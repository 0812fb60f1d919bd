"""Makes calls that each wait for an answer: a few in this thread, more in a pool's threads."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from watcher import process_start

_THREADS = 32
"""The largest number of threads: more keep one core busy with switching."""
_IDLE_THREADS_END_SECONDS = 0.2
"""The longest time that a fork waits for idle threads to end."""

_Answer = TypeVar("_Answer")
_Calls = SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None]


class _Thread(threading.Thread):
    """A pool's thread, as distinct from the program's own."""


class CallPool:
    """Makes several calls at once in up to `most` threads, a single one in the caller's thread.

    Unlike an executor's, these threads don't delay the program's end: a slow read takes half a
    minute. Nor do they hinder a fork: idle ones end before it, and start again with the next calls.
    """

    def __init__(self, *, threads: bool = True, most: int = _THREADS) -> None:
        """Without `threads`, makes all calls in the caller's thread."""
        self.may_have_threads = threads
        self._max_threads = most
        self._threads: list[threading.Thread] = []
        self._calls: _Calls = SimpleQueue()
        self._idle = threading.Semaphore(0)
        process_start.before_fork(self._end_idle_threads)

    def start(self, calls: Sequence[Callable[[], _Answer]], few: int = 1) -> list[Future[_Answer]]:
        """Starts the calls, in threads if there are more than `few`; returns their answers."""
        if self.may_have_threads and (len(calls) > few or self._threads):
            return [self._submit(call) for call in calls]
        return [_run(Future(), call) for call in calls]

    def close(self, *, wait: bool = True) -> None:
        """Ends the threads, as a process that forks must not have any.

        With `wait`, it returns once the calls that have begun are answered.
        """
        with contextlib.suppress(Empty):
            while job := self._calls.get_nowait():
                job[0].cancel()
        threads = self._end_threads()
        for thread in threads if wait else ():
            thread.join()

    def _end_idle_threads(self) -> None:
        others = set(threading.enumerate()) - {threading.current_thread()}
        # With another thread of the program, which may submit a call now, they go on.
        if self._threads and self._calls.empty() and all(isinstance(o, _Thread) for o in others):
            until = time.monotonic() + _IDLE_THREADS_END_SECONDS
            for thread in self._end_threads():
                thread.join(max(0.0, until - time.monotonic()))

    def _end_threads(self) -> list[threading.Thread]:
        """Makes all threads end after the calls that they have; returns the threads."""
        threads, self._threads = self._threads, []
        for _ in threads:
            self._calls.put(None)
        self._calls, self._idle = SimpleQueue(), threading.Semaphore(0)
        return threads

    def _submit(self, call: Callable[[], _Answer]) -> Future[_Answer]:
        future: Future[_Answer] = Future()
        self._calls.put((future, call))
        if not self._idle.acquire(blocking=False) and len(self._threads) < self._max_threads:
            arguments = self._calls, self._idle
            thread = _Thread(target=_work, args=arguments, name="watcher", daemon=True)
            self._threads.append(thread)
            thread.start()
        return future


def _work(calls: _Calls, idle: threading.Semaphore) -> None:
    while (job := calls.get()) is not None:
        if job[0].set_running_or_notify_cancel():
            future, call = job
            _run(future, call)
            del future, call
        del job  # else this thread would keep the answer alive
        idle.release()


def _run(future: Future[_Answer], call: Callable[[], _Answer]) -> Future[_Answer]:
    try:
        future.set_result(call())
    except Exception as error:
        future.set_exception(error)
    return future
