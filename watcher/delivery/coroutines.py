"""Runs the coroutines that async handlers and stores return."""

from __future__ import annotations

import asyncio
import threading
import types
from collections.abc import Coroutine
from concurrent import futures
from typing import Any

from watcher.delivery.callables import check_answer
from watcher.shutdown import Overdue

_CANCELLED_SECONDS = 0.5
"""The time that cancelled tasks get for their end."""


class Coroutines:
    """One event loop for all coroutines, so that their sessions and connection pools live on.

    It runs in the calling thread during `finish`; with `aside`, or where that thread already runs
    an event loop, in a thread of its own.
    """

    def __init__(self, *, aside: bool = False) -> None:
        self._aside = aside
        self._runner: asyncio.Runner | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._is_ending = False

    def finish(self, answer: object) -> object:
        """Returns a call's result, or where it is a coroutine, the coroutine's result.

        Raises the coroutine's error, Overdue where `cancel` cancelled it, NotRunError for a
        generator.
        """
        if answer is None:
            return None
        if not isinstance(answer, types.CoroutineType):
            check_answer(answer)
            return answer
        loop = self._loop()
        try:
            if self._thread is None:
                result: object = loop.run_until_complete(answer)
                return result
            return asyncio.run_coroutine_threadsafe(_awaited(answer), loop).result()
        except (asyncio.CancelledError, futures.CancelledError):
            if self._is_ending:
                raise Overdue("") from None  # concurrent delivery names the record
            raise

    def cancel(self) -> None:
        """Cancels the coroutines that run in another thread: there is no time left for them."""
        self._is_ending = True
        if self._thread is not None and self._runner is not None:
            loop = self._runner.get_loop()
            loop.call_soon_threadsafe(_cancel_all, loop)

    def close(self) -> None:
        """Cancels the remaining coroutines, and closes the event loop."""
        if self._runner is None:
            return
        if self._thread is None:
            self._runner.close()
            return
        self.cancel()
        loop = self._runner.get_loop()
        loop.call_soon_threadsafe(loop.stop)
        self._thread.join(_CANCELLED_SECONDS)

    def _loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._runner is None:
                self._runner = asyncio.Runner()
                loop = self._runner.get_loop()
                if self._aside or _has_running_loop():
                    arguments = self._runner, loop
                    thread = threading.Thread(
                        target=_run, args=arguments, name="watcher coroutines", daemon=True
                    )
                    thread.start()
                    self._thread = thread  # only now: `close` joins a started thread
            return self._runner.get_loop()


def _run(runner: asyncio.Runner, loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    runner.close()  # runs cancelled tasks to their end


async def _awaited(coroutine: Coroutine[Any, Any, object]) -> object:
    return await coroutine


def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    for task in asyncio.all_tasks(loop):
        task.cancel()


def _has_running_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
