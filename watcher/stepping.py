"""A step that blocks, made in a thread, for the tasks of an event loop that wait for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent import futures
from concurrent.futures import Future


class Stepping:
    """One step after the other, each in a thread of its own that keeps no program from its end.

    A task that waits may be cancelled: the step goes on, and who waits next waits for that one.
    """

    def __init__(self, step: Callable[[], object]) -> None:
        self._step = step
        self._made: Future[None] | None = None

    @property
    def is_under_way(self) -> bool:
        """Whether a step is being made."""
        return self._made is not None and not self._made.done()

    async def wait(self) -> None:
        """Make a step, or wait for the one that is being made. Raises what that does."""
        made = self._made
        if made is None:
            made = self._made = Future()
            made.set_running_or_notify_cancel()  # from now on nobody's cancelling ends it
            threading.Thread(target=self._run, args=(made,), name="watcher", daemon=True).start()
        try:
            await asyncio.wrap_future(made)
        finally:
            if made.done() and self._made is made:
                self._made = None

    def settle(self) -> None:
        """Wait, in this thread, for the step that is being made."""
        if self._made is not None:
            futures.wait([self._made])

    def _run(self, made: Future[None]) -> None:
        try:
            self._step()
        except BaseException as error:
            made.set_exception(error)
        else:
            made.set_result(None)
