"""A watch in a process of its own: the view's threads and terminal are nothing to its workers."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from watcher.aws.model import ShardKey
from watcher.delivery.handler import Handler
from watcher.errors import WatcherError
from watcher.formatting.style import about_table
from watcher.observability.watch_stats import Display, Totals, WatchStats
from watcher.records.record import Record

logger = logging.getLogger("watcher")

_LOOK_SECONDS = 0.1

Watch = Callable[[Handler, Display], Totals]
"""Ends in order when its process gets SIGTERM."""


class WatchProcess:
    """A watch's process, begun before there is a view; `run` is what a view's thread does."""

    def __init__(self, watch: Watch) -> None:
        receiving, sending = multiprocessing.Pipe(duplex=False)
        # As cheap as any fork: nothing else runs here yet.
        context = multiprocessing.get_context("fork")
        self._process = context.Process(
            target=_live, args=(watch, sending, receiving), name="watcher live"
        )
        self._process.start()
        sending.close()
        self._receiving = receiving

    def run(
        self, take: Callable[[Record], Any], display: Display, stop: threading.Event
    ) -> Totals | None:
        """Hand over what comes, until the watch has ended. Raises what the watch raised."""
        told = False
        while True:
            if stop.is_set() and not told:
                told = True
                self._process.terminate()
            if not self._receiving.poll(_LOOK_SECONDS):
                continue
            try:
                message = self._receiving.recv()
            except EOFError:
                self._process.join()
                if told:  # before it could end in order
                    return None
                text = f"the watch's process has ended by itself ({self._process.exitcode})"
                raise WatcherError(text) from None
            match message:
                case list():
                    for raw, origin in message:
                        take(Record.from_json(raw, origin.shard_id, origin.stream))
                case WatchStats():
                    display.show(message)
                case logging.LogRecord():
                    logger.handle(message)
                case BaseException():
                    raise message
                case Totals():
                    return message

    def close(self) -> None:
        """See to it that its process ends."""
        if self._process.is_alive():
            self._process.terminate()
        self._process.join()
        self._receiving.close()


def _live(watch: Watch, sending: Connection, others: Connection) -> None:
    """The process's whole life."""
    others.close()
    # The terminal is the view's.
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    sys.stdout = open(os.devnull, "w")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sender = _Sender(sending)
    logger.handlers[:] = [_Forwarding(sender)]
    ended: object
    try:
        ended = watch(sender, sender.figures)
    except BaseException as error:
        error.__cause__ = error.__context__ = None  # what they hold may be of this process alone
        ended = error
    sender.send(ended)


class _Sender(Handler):
    """Sends records page by page; ends the watch where nobody takes them any more."""

    def __init__(self, sending: Connection) -> None:
        super().__init__("live", self._add)
        self._sending = sending
        self._held: list[tuple[bytes, ShardKey]] = []
        self.figures = _Sending(self)

    def _add(self, record: Record) -> None:
        self._held.append((bytes(record.raw), record.origin))

    def page_end(self, origin: ShardKey) -> None:
        """Let them be seen."""
        if self._held:
            self.send(self._held)
            self._held = []

    def send(self, message: object) -> None:
        """The view may have gone."""
        try:
            self._sending.send(message)
        except OSError:
            os.kill(os.getpid(), signal.SIGTERM)


class _Sending(Display):
    def __init__(self, sender: _Sender) -> None:
        self._sender = sender

    def show(self, snapshot: WatchStats) -> None:
        """A few times a second."""
        self._sender.send(snapshot)

    def close(self) -> None:
        """Nothing is held."""


class _Forwarding(logging.Handler):
    def __init__(self, sender: _Sender) -> None:
        super().__init__()
        self._sender = sender

    def emit(self, record: logging.LogRecord) -> None:
        """As text: arguments and tracebacks need not cross, nor what tables are called here."""
        text = about_table(record.getMessage(), vars(record).get("stream", ""))
        record.msg, record.args, record.exc_info = text, (), None
        self._sender.send(record)
