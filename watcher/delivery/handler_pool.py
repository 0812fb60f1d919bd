"""The threads in which handlers work where several shards' records are handled at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Protocol

Work = Callable[[], Iterator[None]]
"""A generator of steps; after each of them another one may have its turn."""


class HandlerPool(Protocol):
    """Runs work in threads, or in the simulation's substitute for them."""

    size: int
    """The largest number of threads."""

    def submit(self, work: Work) -> None:
        """Has the next free thread run this; work is begun in the order of its submission."""

    def close(self) -> None:
        """Refuses more work."""


class ThreadHandlerPool:
    """Up to `size` threads, started when they are needed; daemons, so that a program can end."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._works: SimpleQueue[Work | None] = SimpleQueue()
        self._started = 0
        self.is_open = True
        """False once it takes no more work."""
        self._lock = threading.Lock()

    def submit(self, work: Work) -> None:
        """See `HandlerPool`."""
        with self._lock:
            if not self.is_open:
                return
            self._works.put(work)
            if self._started < self.size:
                self._started += 1
                threading.Thread(target=self._run, name="watcher handler", daemon=True).start()

    def close(self) -> None:
        """See `HandlerPool`."""
        with self._lock:
            self.is_open = False
            for _ in range(self._started):
                self._works.put(None)

    def _run(self) -> None:
        while (work := self._works.get()) is not None:
            for _ in work():
                pass
