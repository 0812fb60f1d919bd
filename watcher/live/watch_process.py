"""Runs the live view's watch in its own process."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection

from watcher.aws.model import ShardKey
from watcher.delivery.handler import Handler
from watcher.errors import WatcherError
from watcher.formatting.style import about_table
from watcher.observability.watch_stats import Display, Totals, WatchStats
from watcher.records.record import Record

logger = logging.getLogger("watcher")

# The time within which the view's thread notices the user's wish to stop.
_POLL_SECONDS = 0.1

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
        self,
        on_record: Callable[[Record], None],
        on_stats: Callable[[WatchStats], None],
        stop: threading.Event,
    ) -> Totals | None:
        """Hands records and statistics over until the watch has ended. Raises the watch's error."""
        for message in self._messages(stop):
            match message:
                case Totals():
                    return message
                case list():
                    for raw, shard_key in message:
                        on_record(Record.from_json(raw, shard_key.shard_id, shard_key.stream))
                case WatchStats():
                    on_stats(message)
                case logging.LogRecord():
                    logger.handle(message)
                case BaseException():
                    raise message
        return None

    def _messages(self, stop: threading.Event) -> Iterator[object]:
        """Yields the process's messages; ends it once `stop` is set.

        Raises WatcherError where it has ended by itself without its last message.
        """
        is_stopping = False
        while True:
            if stop.is_set() and not is_stopping:
                is_stopping = True
                self._terminate()
            if not self._receiving.poll(_POLL_SECONDS):
                continue
            try:
                yield self._receiving.recv()
            except EOFError:
                if is_stopping:  # it was terminated before it could stop in order
                    return
                self._process.join()
                text = f"the watch's process ended unexpectedly ({self._process.exitcode})"
                raise WatcherError(text) from None

    def _terminate(self) -> None:
        """Has the watch stop in order."""
        if self._process.is_alive():
            self._process.terminate()

    def close(self) -> None:
        """Ends the process."""
        self._terminate()
        self._process.join()
        self._receiving.close()


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
