"""Calls that wait for an answer each: a few one after the other, many of them side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

# So few are over sooner than anybody notices; and a program that has threads can't fork cheaply.
FEW = 8
_THREADS = 32

_Answer = TypeVar("_Answer")


class SideBySide:
    """Makes calls in threads once there are many at a time; without `threads`, never."""

    def __init__(self, *, threads: bool = True) -> None:
        self.may_have_threads = threads
        self._pool: ThreadPoolExecutor | None = None

    def start(
        self, calls: Sequence[Callable[[], _Answer]], few: int = FEW
    ) -> list[Future[_Answer]]:
        """Their answers, some of which may be still to come where there are more than `few`."""
        if len(calls) > few and self.may_have_threads and self._pool is None:
            self._pool = ThreadPoolExecutor(_THREADS, "watcher")
        if self._pool is None:
            return [_done(call) for call in calls]
        return [self._pool.submit(call) for call in calls]

    def close(self, *, wait: bool = True) -> None:
        """End the threads, as a process that forks others must not have any.

        With `wait`, once the calls that have begun are through.
        """
        if self._pool is not None:
            self._pool.shutdown(wait, cancel_futures=True)
            self._pool = None


def _done(call: Callable[[], _Answer]) -> Future[_Answer]:
    future: Future[_Answer] = Future()
    try:
        future.set_result(call())
    except Exception as error:
        future.set_exception(error)
    return future
