"""A watch's figures for others, from a process of their own: asked for over HTTP, or sent.

The manager must neither run threads (it forks) nor wait for anybody: it writes its figures into a
pipe about once a second, and this process has the last ones.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import signal
import socket
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from multiprocessing.connection import Connection, Pipe
from typing import BinaryIO

import msgspec

from watcher import process_start
from watcher.errors import UsageError
from watcher.observability import telemetry
from watcher.observability.heartbeat import Heartbeat
from watcher.observability.instruments import LastFigures
from watcher.observability.watch_stats import Display, WatchStats
from watcher.sockets import listening, url
from watcher.version import install


@contextmanager
def outlets(
    display: Display | None, metrics_port: str | int | None, stop_timeout: float
) -> Iterator[tuple[list[Display], Heartbeat]]:
    """Those that are asked for, until the end of the watch, and the heartbeat that they look at.

    Raises UsageError.
    """
    found = [] if display is None else [display]
    heartbeat = Heartbeat.shared()
    with ExitStack() as stack:
        senders = telemetry.exporters("metrics")
        if metrics_port is not None or senders:
            place = exporting(metrics_port, heartbeat, senders, stop_timeout)
            found.append(stack.enter_context(place))
        yield found, heartbeat


logger = logging.getLogger("watcher")

_HEADER = struct.Struct("<I")
_SEND_SECONDS = 1.0
_END_SECONDS = 2.0
_LEAST_SECONDS = 0.5
_MOST_SECONDS = 3600.0

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(WatchStats)


@contextmanager
def exporting(
    address: str | int | None,
    heartbeat: Heartbeat,
    senders: Sequence[str] = (),
    seconds: float = _END_SECONDS,
) -> Iterator[Exporter]:
    """Serve metrics at `[HOST:]PORT` (on the loopback, if no host is named) until the end.

    And whether the watch lives, by its `heartbeat`. OpenTelemetry's `senders` send the metrics, for
    the last time within so many seconds of the watch's end. Raises UsageError where it can't listen.
    """
    with _listening(address) as made:
        exporter = Exporter(made, heartbeat, senders, seconds)
        place = made and url(made)
    # Nor is it open in any process that is started from here on.
    if place:
        logger.info(f"Metrics: {place}/metrics")
    try:
        yield exporter
    finally:
        exporter.end()


def _listening(address: str | int | None) -> AbstractContextManager[socket.socket | None]:
    if address is None:
        return nullcontext()
    if importlib.util.find_spec("prometheus_client") is None:
        reason = f"needs prometheus-client: {install('metrics')}"
        raise UsageError(reason, "metrics_port")
    return listening(str(address), "metrics_port")


class Exporter(Display):
    """The manager's end: sends a snapshot about once a second, without ever waiting."""

    def __init__(
        self,
        listening: socket.socket | None,
        heartbeat: Heartbeat,
        senders: Sequence[str] = (),
        seconds: float = _END_SECONDS,
    ) -> None:
        receiving, self._sending = Pipe(duplex=False)
        os.set_blocking(self._sending.fileno(), False)
        # A copy of our end would keep the exporter going when the manager is gone.
        process_start.in_child(self.close)
        self._heartbeat = heartbeat
        self._seconds = seconds if senders else _END_SECONDS
        self._left = b""
        self._latest: WatchStats | None = None
        self._due = 0.0
        context = process_start.processes()
        is_fork = context.get_start_method() == "fork"
        self._process = context.Process(  # type: ignore[attr-defined]
            target=serve,
            args=(listening, receiving, heartbeat, senders),
            kwargs={} if is_fork else {"environment": dict(os.environ)},
            name="watcher metrics",
            daemon=True,
        )
        process_start.start(self._process)
        receiving.close()

    def show(self, snapshot: WatchStats) -> None:
        """Send it, if the last one was sent a second ago, and has been taken."""
        self._latest = snapshot
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + _SEND_SECONDS
            self._send()

    def _send(self) -> None:
        if self._sending.closed:
            return
        if not self._left and self._latest is not None:
            body = _encoder.encode(self._latest)
            self._left = _HEADER.pack(len(body)) + body
            self._latest = None
        try:
            self._left = self._left[os.write(self._sending.fileno(), self._left) :]
        except BlockingIOError:
            pass
        except BrokenPipeError:
            self.close()
            logger.warning("The process that serves the metrics has ended; the watch goes on")

    def close(self) -> None:
        """Send no more."""
        self._sending.close()

    def end(self) -> None:
        """Send the last figures, and let the exporter end, which may have to send them on."""
        self._send()
        self._send()  # where there was something left of others
        self.close()
        passed = time.monotonic() - (self._heartbeat.state().stopping_since or time.monotonic())
        self._process.join(max(_LEAST_SECONDS, min(self._seconds - passed, _MOST_SECONDS)))
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
            logger.warning("OpenTelemetry: the last metrics could not be sent in time")


def serve(
    listening: socket.socket | None,
    receiving: Connection,
    heartbeat: Heartbeat,
    senders: Sequence[str],
    environment: Mapping[str, str] | None = None,
) -> None:
    """The exporter's whole life: to the end of the pipe, however the manager ends.

    `environment` is that of `forks.take_environment`.
    """
    process_start.take_environment(environment)
    # Both are meant for the manager; until its end there may be somebody who scrapes.
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with contextlib.suppress(OSError):  # the reader of the data must see its end
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        os.dup2(nothing, 1)
    latest = LastFigures()
    with ExitStack() as stack:
        # Not at the top: an extra may be missing where nobody asks for it.
        if listening is not None:
            from watcher.observability.http_server import answering

            stack.enter_context(answering(listening, latest, heartbeat))
        if senders:
            from watcher.observability.otel import sending

            stack.enter_context(sending(senders, latest))
        pipe = stack.enter_context(open(receiving.fileno(), "rb", closefd=False))
        while (snapshot := _received(pipe)) is not None:
            latest.take(snapshot)


def _received(pipe: BinaryIO) -> WatchStats | None:
    """The next snapshot; None at the end, which a killed manager leaves in the middle of one."""
    head = pipe.read(_HEADER.size)
    if len(head) < _HEADER.size:
        return None
    (size,) = _HEADER.unpack(head)
    body = pipe.read(size)
    return _decoder.decode(body) if len(body) == size else None
