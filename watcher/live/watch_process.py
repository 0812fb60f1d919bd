"""Runs the live view's watch in its own process, for one terminal or for several browsers."""

from __future__ import annotations

import logging
import multiprocessing
import os
import pickle
import queue
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Final

from watcher.aws.model import ShardKey
from watcher.delivery.handler import Handler
from watcher.errors import WatcherError
from watcher.formatting.style import about_table
from watcher.live.timing import LIVE_TIMING
from watcher.observability.watch_stats import Display, Totals, WatchStats
from watcher.records.record import Record

logger = logging.getLogger("watcher")


RunWatch = Callable[[Handler, Display], Totals]
"""Runs a watch, which stops in order when its process gets SIGTERM."""


class WatchProcess:
    """The process of a watch, started before the view; the view's thread calls `run`."""

    def __init__(self, watch: RunWatch) -> None:
        receiving, sending = multiprocessing.Pipe(duplex=False)
        # A fork is cheap here: nothing else runs yet.
        context = multiprocessing.get_context("fork")
        self._process = context.Process(
            target=_run, args=(watch, sending, receiving), name="watcher live"
        )
        self._process.start()
        sending.close()
        self._receiving = receiving

    def run(
        self, on_record: Callable[[Record], None], display: Display, stop: threading.Event
    ) -> Totals | None:
        """Hands records and statistics over until the watch has ended. Raises the watch's error."""
        is_stopping = False
        while True:
            if stop.is_set() and not is_stopping:
                is_stopping = True
                self.terminate()
            if not self._receiving.poll(LIVE_TIMING.poll_seconds):
                continue
            try:
                message = self.receive()
            except WatcherError:
                if is_stopping:  # it was terminated before it could stop in order
                    return None
                raise
            if isinstance(message, Totals):
                return message
            on_message(message, on_record, display)

    def receive(self) -> object:
        """Waits for a message. Raises WatcherError where the process has ended without its last."""
        try:
            return self._receiving.recv()
        except EOFError:
            self._process.join()
            text = f"the watch's process ended unexpectedly ({self._process.exitcode})"
            raise WatcherError(text) from None

    def terminate(self) -> None:
        """Has the watch stop in order."""
        if self._process.is_alive():
            self._process.terminate()

    def close(self) -> None:
        """Ends the process."""
        self.terminate()
        self._process.join()
        self._receiving.close()


def on_message(message: object, on_record: Callable[[Record], None], display: Display) -> None:
    """Takes a message of the watch's process."""
    match message:
        case list():
            for raw, shard_key in message:
                on_record(Record.from_json(raw, shard_key.shard_id, shard_key.stream))
        case WatchStats():
            display.show(message)
        case logging.LogRecord():
            logger.handle(message)
        case BaseException():
            raise message


def _run(watch: RunWatch, sending: Connection, others: Connection) -> None:
    """Runs the watch in its process, from beginning to end."""
    others.close()
    # The terminal is the view's.
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    sys.stdout = open(os.devnull, "w")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sender = _Sender(sending)
    logger.handlers[:] = [_ForwardingHandler(sender)]
    ended: object
    try:
        ended = watch(sender, sender.display)
    except BaseException as error:
        error.__cause__ = error.__context__ = None  # they may hold things that don't pickle
        ended = error
    sender.send(ended)


class _Sender(Handler):
    """Sends records page by page; stops the watch once the view is gone."""

    def __init__(self, sending: Connection) -> None:
        super().__init__("live", self._add)
        self._sending = sending
        self._held: list[tuple[bytes, ShardKey]] = []
        self.display = _SendingDisplay(self)

    def _add(self, record: Record) -> None:
        self._held.append((bytes(record.raw), record.shard_key))

    def page_end(self, shard_key: ShardKey) -> None:
        """Sends the records of the page."""
        if self._held:
            self.send(self._held)
            self._held = []

    def send(self, message: object) -> None:
        """Sends a message; a broken pipe stops the watch, as the view is gone."""
        try:
            self._sending.send(message)
        except OSError:
            os.kill(os.getpid(), signal.SIGTERM)


class _SendingDisplay(Display):
    def __init__(self, sender: _Sender) -> None:
        self._sender = sender

    def show(self, stats: WatchStats) -> None:
        """Sends the statistics, a few times a second."""
        self._sender.send(stats)

    def close(self) -> None:
        """Does nothing: there is nothing to release."""


class _ForwardingHandler(logging.Handler):
    def __init__(self, sender: _Sender) -> None:
        super().__init__()
        self._sender = sender

    def emit(self, record: logging.LogRecord) -> None:
        """Sends a log record as text: its arguments and tables' names stay in this process."""
        text = about_table(record.getMessage(), vars(record).get("stream", ""))
        record.msg, record.args, record.exc_info = text, (), None
        self._sender.send(record)


# One watch for all the browsers that look at it

DESCRIPTOR: Final = "TEXTUAL_WATCHER_DESCRIPTOR"
"""The variable that tells a viewer's program the pipe of its messages."""
# Who comes later is shown so much of what was before.
_KEPT_BYTES = 16_000_000
# A program that has not taken so many messages does not run any more, or far too slowly.
_WAITING_MAX = 10_000


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
    """Hands over what another process's watch says, until the user stops. Raises its error.

    Ends this process if the other one has gone: nobody reads what the view prints.
    """
    with Connection(descriptor, writable=False) as receiving:
        while not stop.is_set():
            if not receiving.poll(LIVE_TIMING.poll_seconds):
                continue
            try:
                message = receiving.recv()
            except EOFError:
                # One that tried to end in order, with a broken pipe to print to, drew for ever.
                os._exit(1)
            if isinstance(message, Totals):
                return message
            on_message(message, on_record, display)
    return None
