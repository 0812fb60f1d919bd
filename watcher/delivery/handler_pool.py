"""The threads in which handlers of several shards run at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Protocol

Work = Callable[[], Iterator[None]]
"""A generator of steps; after each of them the simulation may switch to another one."""


class HandlerPool(Protocol):
    """Runs work in threads, or in the simulation's substitute for them."""

    size: int
    """The largest number of threads."""

    def submit(self, work: Work) -> None:
        """Runs this work in the next free thread, in the order of submission."""

    def close(self) -> None:
        """Refuses more work."""


class ThreadHandlerPool:
    """Up to `size` threads, started on demand; daemons, so that the program can end."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._queue: SimpleQueue[Work | None] = SimpleQueue()
        self._started = 0
        self.is_open = True
        """False once `close` was called."""
        self._lock = threading.Lock()

    def submit(self, work: Work) -> None:
        """See `HandlerPool`."""
        with self._lock:
            if not self.is_open:
                return
            self._queue.put(work)
            if self._started < self.size:
                self._started += 1
                threading.Thread(target=self._run, name="watcher handler", daemon=True).start()

    def close(self) -> None:
        """See `HandlerPool`."""
        with self._lock:
            self.is_open = False
            for _ in range(self._started):
                self._queue.put(None)

    def _run(self) -> None:
        while (work := self._queue.get()) is not None:
            for _ in work():
                pass
