"""Drives a read-ahead with a few threads."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

from watcher.aws.model import Service
from watcher.spark.read_ahead import HeldShard, ReadAhead

_THREADS = 8
_END_SECONDS = 2.0


class ReaderThreads:
    """A few threads that read many shards, each when its turn has come.

    `connect` makes a client for each of them: a shortcut's one connection can't be shared.
    """

    def __init__(self, ahead: ReadAhead, connect: Callable[[], Service]) -> None:
        self.ahead = ahead
        self.lock = threading.RLock()
        self._news = threading.Condition(self.lock)
        self._work = threading.Condition(self.lock)
        self._connect = connect
        self._threads: list[threading.Thread] = []
        self._stopped = False

    def wake(self) -> None:
        """Wake the threads that wait; start one more where there are shards enough."""
        self._work.notify_all()
        if len(self._threads) < min(_THREADS, len(self.ahead.shards)):
            name = f"reader {len(self._threads)}"
            # A daemon: Spark ends this process without a word.
            thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def wait(self, seconds: float) -> None:
        """Until something was read, or so long."""
        self._news.wait(seconds)

    def stop(self) -> None:
        """End the threads; one that is in a call may take until its answer."""
        with self.lock:
            self._stopped = True
            self._work.notify_all()
        for thread in self._threads:
            thread.join(_END_SECONDS)

    def _run(self) -> None:
        try:
            service = self._connect()
            while (shard := self._next()) is not None:
                read = shard.read(service)  # outside of the lock: the others read meanwhile
                with self.lock:
                    self.ahead.take(shard, read)
                    self._work.notify()
                    self._news.notify_all()
        except BaseException as error:
            with self.lock:
                self.ahead.failure = self.ahead.failure or error
                self._news.notify_all()

    def _next(self) -> HeldShard | None:
        """The shard whose turn has come, when it has come; None at the end."""
        with self.lock:
            while not self._stopped:
                if (shard := self.ahead.next()) is not None:
                    return shard
                wait = self.ahead.wait()
                self._work.wait(None if wait == math.inf else wait)
        return None
