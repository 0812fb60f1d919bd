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

_Answer = TypeVar("_Answer")
_Calls = SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None]

# More threads keep one core busy with switching.
_THREADS = 32
# A fork waits so long for the threads to end. One that waits for bytes holds no lock that the fork
# would copy; a busy one ends soon.
_SETTLE_SECONDS = 0.2


class CallPool:
    """Makes several calls at once in up to `most` threads, a single one in the caller's thread.

    Unlike an executor's, these threads don't delay the program's end: a slow read takes half a
    minute. Nor do they hinder a fork: they end before it, and start again with the next calls.
    """

    def __init__(self, *, threads: bool = True, most: int = _THREADS) -> None:
        """Without `threads`, makes all calls in the caller's thread."""
        self.may_have_threads = threads
        self._max_threads = most
        self._begin()
        process_start.before_fork(self._settle)
        process_start.in_forked_child(self._begin)

    def start(self, calls: Sequence[Callable[[], _Answer]], few: int = 1) -> list[Future[_Answer]]:
        """Starts the calls, in threads if there are more than `few`; returns their answers."""
        if self.may_have_threads and (len(calls) > few or self._threads):
            return [self._submit(call) for call in calls]
        answers = [Future[_Answer]() for _ in calls]
        for answer, call in zip(answers, calls, strict=True):
            _run(answer, call)
        return answers

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

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._forget_threads()

    def __del__(self) -> None:
        for _ in self._threads:  # no other name: at the program's end they may be gone
            self._calls.put(None)

    def _settle(self) -> None:
        """Before a fork: ends the idle threads, and waits a moment for busy ones."""
        until = time.monotonic() + _SETTLE_SECONDS
        for thread in self._end_threads():
            if thread is not threading.current_thread():  # a call of ours may fork
                thread.join(max(0.0, until - time.monotonic()))

    def _end_threads(self) -> list[threading.Thread]:
        """Makes all threads end after the calls that they have; returns the threads."""
        with self._lock:  # another thread may make a call now
            threads, calls = self._threads, self._calls
            self._forget_threads()
        for _ in threads:
            calls.put(None)
        return threads

    def _forget_threads(self) -> None:
        self._threads: list[threading.Thread] = []
        self._calls: _Calls = SimpleQueue()
        self._idle = threading.Semaphore(0)

    def _submit(self, call: Callable[[], _Answer]) -> Future[_Answer]:
        future: Future[_Answer] = Future()
        with self._lock:
            self._calls.put((future, call))
            if not self._idle.acquire(blocking=False) and len(self._threads) < self._max_threads:
                arguments = self._calls, self._idle
                thread = threading.Thread(target=_work, args=arguments, name="watcher", daemon=True)
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


def _run(future: Future[_Answer], call: Callable[[], _Answer]) -> None:
    try:
        future.set_result(call())
    except BaseException as error:
        future.set_exception(error)
        del future  # else the error's frame would keep it alive, and its socket
