"""One watch for all the browsers that look at it: each message goes to every viewer's program."""

from __future__ import annotations

import logging
import pickle
import queue
import threading
from collections import deque
from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Final

from watcher.errors import WatcherError
from watcher.live.watch_process import WatchProcess, on_message
from watcher.observability.watch_stats import Display, Totals, WatchStats
from watcher.records.record import Record

logger = logging.getLogger("watcher")

DESCRIPTOR: Final = "TEXTUAL_WATCHER_DESCRIPTOR"
"""The variable that tells a viewer's program the pipe of its messages."""
# Who comes later is shown so much of what was before.
_KEPT_BYTES = 16_000_000
# A program that has not taken so many messages does not run any more, or far too slowly.
_WAITING_MAX = 10_000
_POLL_SECONDS = 0.1


class SharedWatch:
    """Reads a watch's process in a thread, and hands on what it says.

    `on_error` is called in that thread where the watch has ended with an error.
    """

    def __init__(self, watch: WatchProcess, on_error: Callable[[], object]) -> None:
        self.totals: Totals | None = None
        self.error: BaseException | None = None
        self._watch = watch
        self._on_error = on_error
        self._lock = threading.Lock()
        self._viewers: list[Viewer] = []
        self._changes: deque[bytes] = deque()
        self._size = 0
        self._latest: list[bytes] = []  # statistics, and how the watch has ended
        self._thread = threading.Thread(target=self._run, name="watcher live")
        self._thread.start()

    def _run(self) -> None:
        try:
            while True:
                message = self._watch.receive()
                self._hand_on(message)
                if isinstance(message, logging.LogRecord):
                    logger.handle(message)
                elif isinstance(message, Totals):
                    self.totals = message
                    return
                elif isinstance(message, BaseException):
                    raise message
        except BaseException as error:
            self.error = error
            self._on_error()

    def _hand_on(self, message: object) -> None:
        data = pickle.dumps(message)
        with self._lock:
            if isinstance(message, list):
                self._changes.append(data)
                self._size += len(data)
                while self._size > _KEPT_BYTES and len(self._changes) > 1:
                    self._size -= len(self._changes.popleft())
            elif isinstance(message, WatchStats):
                self._latest = [data]
            elif isinstance(message, Totals):
                self._latest.append(data)
            self._viewers = [each for each in self._viewers if each.add(data)]

    def join(self, on_left: Callable[[], object]) -> Viewer:
        """Returns a new viewer; `on_left` is called in a thread where it takes no more messages."""
        viewer = Viewer(on_left)
        with self._lock:
            for data in (*self._changes, *self._latest):
                viewer.add(data)
            self._viewers.append(viewer)
        return viewer

    def close(self) -> None:
        """Ends the watch, in order, and its viewers."""
        self._watch.terminate()
        self._thread.join()
        self._watch.close()
        for viewer in self._viewers:
            viewer.close()


class Viewer:
    """The pipe to one viewer's program, written by a thread: a slow one keeps nobody waiting."""

    def __init__(self, on_left: Callable[[], object]) -> None:
        self.receiving, self._sending = Pipe(duplex=False)
        self._on_left = on_left
        self._waiting: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._is_left = False
        threading.Thread(target=self._run, name="watcher live viewer", daemon=True).start()

    def add(self, data: bytes) -> bool:
        """Has a message sent; False where the viewer has gone, or is too slow."""
        if not self._is_left and self._waiting.qsize() > _WAITING_MAX:
            self._is_left = True
            self._on_left()
        if not self._is_left:
            self._waiting.put(data)
        return not self._is_left

    def close(self) -> None:
        """Ends it once what waits is sent."""
        self._is_left = True
        self._waiting.put(None)

    def _run(self) -> None:
        try:
            while (data := self._waiting.get()) is not None:
                self._sending.send_bytes(data)
        except OSError:  # its program has ended
            self._is_left = True
        self._sending.close()


def run_shared(
    descriptor: int, on_record: Callable[[Record], None], display: Display, stop: threading.Event
) -> Totals | None:
    """Hands over what another process's watch says, until the user stops. Raises its error."""
    with Connection(descriptor, writable=False) as receiving:
        while not stop.is_set():
            if not receiving.poll(_POLL_SECONDS):
                continue
            try:
                message = receiving.recv()
            except EOFError:
                raise WatcherError("the watch has ended, or this view was too slow") from None
            if isinstance(message, Totals):
                return message
            on_message(message, on_record, display)
    return None
