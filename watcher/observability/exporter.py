"""Exports the watch's statistics over HTTP, from a separate process.

With a thread in the manager its workers could not be forked, and would take 30 MB each in place
of 4. The manager writes its statistics into a pipe about once a second, and never waits.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import pickle
import re
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection, Pipe

from watcher import process_start
from watcher.errors import ResourceError, UsageError
from watcher.observability.heartbeat import Heartbeat
from watcher.observability.watch_stats import Display, WatchStats
from watcher.process_start import failed_start
from watcher.version import install

logger = logging.getLogger("watcher")

_LOOPBACK = "127.0.0.1"
_ADDRESS = re.compile(r"(?:(?P<host>\[[\w:.%]+\]|[^\[\]:]+):)?(?P<port>\d{1,5})")

SEND_SECONDS = 1.0
"""The delay between two sends: the statistics change faster than any scrape."""


@contextmanager
def exporting(address: str | int, heartbeat: Heartbeat) -> Iterator[Exporter]:
    """Serves metrics and probes at `[HOST:]PORT` (default host: loopback) until the block ends.

    The probes report the watch's `heartbeat`. Raises UsageError where it can't listen.
    """
    with _listening(str(address)) as server_socket:
        exporter = Exporter(server_socket, heartbeat)
        host, port = server_socket.getsockname()[:2]
    # The socket is closed here: no process started from now on inherits it.
    logger.info(f"Metrics: http://{f'[{host}]' if ':' in host else host}:{port}/metrics")
    try:
        yield exporter
    finally:
        exporter.end()


def _listening(address: str) -> socket.socket:
    """Returns a socket that listens at `[HOST:]PORT`; a port of 0 is any free one.

    Bound here, so that a port in use is known before the start. Raises UsageError.
    """
    if importlib.util.find_spec("prometheus_client") is None:
        raise UsageError(f"needs prometheus-client: {install('metrics')}", "metrics_port")
    match = _ADDRESS.fullmatch(address)
    if match is None or int(match["port"]) > 65535:
        raise UsageError("give PORT, or HOST:PORT, such as 9464", "metrics_port", address)
    host, port = (match["host"] or _LOOPBACK).strip("[]"), int(match["port"])
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except OSError as error:
        # socket.create_server adds words of its own; a name that is not found has no number.
        number = error.errno or 0
        reason = os.strerror(number) if number > 0 else error.strerror or str(error)
        text = f"can't listen there ({reason.lower()}); choose another"
        raise UsageError(text, "metrics_port", address) from None


class Exporter(Display):
    """The manager's end of the pipe: sends statistics about once a second, and never waits."""

    def __init__(self, listening: socket.socket, heartbeat: Heartbeat) -> None:
        receiving, self._sending = Pipe(duplex=False)
        os.set_blocking(self._sending.fileno(), False)
        # A child's copy of our end would keep the exporter running when the manager is gone.
        process_start.in_forked_child(self.close)
        self._unsent = b""
        self._due = 0.0
        self.process = process_start.processes().Process(  # type: ignore[attr-defined]
            target=serve,
            args=(listening, receiving, heartbeat),
            name="watcher metrics",
            daemon=True,
        )
        try:
            process_start.start(self.process)
        except OSError as error:
            self.close()
            text = f"can't start the process that serves the metrics: {failed_start(error)}"
            raise ResourceError(text) from error
        finally:
            receiving.close()

    def show(self, stats: WatchStats) -> None:
        """Writes as much as the pipe takes: the rest of the last statistics, or these if due."""
        if self._sending.closed:
            return
        if not self._unsent and time.monotonic() >= self._due:
            self._due = time.monotonic() + SEND_SECONDS
            self._unsent = pickle.dumps(stats)
        try:
            self._unsent = self._unsent[os.write(self._sending.fileno(), self._unsent) :]
        except BlockingIOError:
            pass
        except BrokenPipeError:
            self.close()
            logger.warning("The process that serves the metrics has ended; the watch continues")

    def close(self) -> None:
        """Closes the pipe."""
        self._sending.close()

    def end(self) -> None:
        """Ends the exporter."""
        self.close()
        self.process.kill()  # it has nothing left to do
        self.process.join()


def serve(listening: socket.socket, receiving: Connection, heartbeat: Heartbeat) -> None:
    """Runs the exporter's process until the end of the pipe, however the manager ends."""
    # These signals are for the manager; the exporter serves scrapes until the manager's end.
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with contextlib.suppress(OSError):  # an open copy would hide the end of standard output
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        os.dup2(nothing, 1)
    from watcher.observability.metrics import MetricsServer  # an extra, maybe missing

    server = MetricsServer(listening, heartbeat)
    with (
        open(receiving.fileno(), "rb", closefd=False) as pipe,
        contextlib.suppress(EOFError, pickle.UnpicklingError),  # a killed manager leaves a part
    ):
        while True:
            server.stats = pickle.load(pipe)  # noqa: S301 (from the manager alone)
