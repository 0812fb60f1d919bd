"""What handlers run in where several shards' records are handled at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Protocol

_Work = Callable[[], Iterator[None]]


class Hands(Protocol):
    """What works: threads, or what the simulation has in their place."""

    count: int
    """How many there are."""

    def take(self, work: _Work) -> None:
        """Have one of them go through this once it is free; what came first is begun first."""

    def close(self) -> None:
        """Nothing more comes."""


class ThreadedHands:
    """Up to so many threads, begun as they are needed; they keep no program from its end."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._works: SimpleQueue[_Work | None] = SimpleQueue()
        self._begun = 0
        self._is_open = True
        self._lock = threading.Lock()

    def take(self, work: _Work) -> None:
        """See `Hands`."""
        with self._lock:
            if not self._is_open:
                return
            self._works.put(work)
            if self._begun < self.count:
                self._begun += 1
                threading.Thread(target=self._run, name="watcher handler", daemon=True).start()

    def close(self) -> None:
        """See `Hands`."""
        with self._lock:
            self._is_open = False
            for _ in range(self._begun):
                self._works.put(None)

    def _run(self) -> None:
        while (work := self._works.get()) is not None:
            for _ in work():
                pass
