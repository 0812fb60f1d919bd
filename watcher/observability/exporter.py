"""Exports the watch's statistics over HTTP, from a separate process.

With a thread in the manager its workers could not be forked, and would take 30 MB each in place
of 4. The manager writes its statistics into a pipe about once a second, and never waits.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import re
import signal
import socket
import struct
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection, Pipe
from typing import BinaryIO

import msgspec

from watcher import process_start
from watcher.errors import ResourceError, UsageError
from watcher.observability.heartbeat import Heartbeat
from watcher.observability.watch_stats import Display, LatestStats, WatchStats
from watcher.process_start import failed_start
from watcher.version import install

logger = logging.getLogger("watcher")

_LOOPBACK = "127.0.0.1"
_ADDRESS = re.compile(r"(?:(?P<host>\[[\w:.%]+\]|[^\[\]:]+):)?(?P<port>\d{1,5})")
_HEADER = struct.Struct("<I")

# The delay between two sends: the statistics change faster than any scrape.
_SEND_SECONDS = 1.0
# The time for the exporter's end: it has nothing left to do.
_END_SECONDS = 2.0
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(WatchStats)


@contextmanager
def exporting(
    address: str | int, heartbeat: Heartbeat, *, send_seconds: float = _SEND_SECONDS
) -> Iterator[Exporter]:
    """Serves metrics and probes at `[HOST:]PORT` (default host: loopback) until the block ends.

    The probes report the watch's `heartbeat`. Raises UsageError where it can't listen.
    """
    with _listening(str(address)) as server_socket:
        exporter = Exporter(server_socket, heartbeat, send_seconds=send_seconds)
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

    def __init__(
        self,
        listening: socket.socket,
        heartbeat: Heartbeat,
        *,
        send_seconds: float = _SEND_SECONDS,
    ) -> None:
        receiving, self._sending = Pipe(duplex=False)
        os.set_blocking(self._sending.fileno(), False)
        # A child's copy of our end would keep the exporter running when the manager is gone.
        process_start.in_forked_child(self.close)
        self._send_seconds = send_seconds
        self._unsent = b""
        self._latest: WatchStats | None = None
        self._due = 0.0
        context = process_start.processes()
        is_fork = context.get_start_method() == "fork"
        self.process = context.Process(  # type: ignore[attr-defined]
            target=serve,
            args=(listening, receiving, heartbeat),
            kwargs={} if is_fork else {"environment": dict(os.environ)},
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
        """Sends the statistics, unless the last ones were sent within a second."""
        self._latest = stats
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + self._send_seconds
            self.flush()

    def flush(self) -> None:
        """Writes as much as the pipe takes: the rest of a message, or the latest statistics."""
        if self._sending.closed:
            return
        if not self._unsent and self._latest is not None:
            body = _encoder.encode(self._latest)
            self._unsent = _HEADER.pack(len(body)) + body
            self._latest = None
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
        """Ends the exporter, which has the last statistics for scrapes up to now."""
        self.close()
        self.process.join(_END_SECONDS)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


def serve(
    listening: socket.socket,
    receiving: Connection,
    heartbeat: Heartbeat,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Runs the exporter's process until the end of the pipe, however the manager ends.

    `environment` is for `process_start.take_environment`.
    """
    process_start.take_environment(environment)
    # These signals are for the manager; the exporter serves scrapes until the manager's end.
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with contextlib.suppress(OSError):  # an open copy would hide the end of standard output
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        os.dup2(nothing, 1)
    from watcher.observability.http_server import answer_requests  # an extra, maybe missing

    latest = LatestStats()
    answer_requests(listening, latest, heartbeat)
    with open(receiving.fileno(), "rb", closefd=False) as pipe:
        while (stats := _received(pipe)) is not None:
            latest.show(stats)


def _received(pipe: BinaryIO) -> WatchStats | None:
    """Reads the next statistics; None at the end, or if a killed manager left a part of them."""
    head = pipe.read(_HEADER.size)
    if len(head) < _HEADER.size:
        return None
    (size,) = _HEADER.unpack(head)
    body = pipe.read(size)
    return _decoder.decode(body) if len(body) == size else None
