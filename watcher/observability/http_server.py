"""What a service manager's probes are answered: whether a watch lives, whether it is ready."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from socketserver import ThreadingMixIn
from typing import Any, Final, NamedTuple
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from watcher.clock import CLOCK, Clock
from watcher.observability import watch_stats
from watcher.observability.heartbeat import Heartbeat, HeartbeatState, Phase
from watcher.observability.instruments import Instrument, LastFigures
from watcher.observability.watch_stats import WatchStats

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]

_WHAT = {
    Phase.STARTING: "the start",
    Phase.STANDING_BY: "standing by",
    Phase.WATCHING: "the watch's loop",
    Phase.READING_ITEMS: "a read of the table's items",
    Phase.DELIVERING: "a handler",
    Phase.SAVING: "a save of the positions",
}
_ANOTHERS = "another watch has the lease"
_METHODS = "GET, HEAD"
# Whoever looks twice a second, and has not for so long, stood still.
_STILL_SECONDS = 5.0


class Answers(NamedTuple):
    """The lines that say what is wrong; none: all is well."""

    live: list[str]
    """Why a restart may help."""
    ready: list[str]


def judge(snapshot: WatchStats, state: HeartbeatState, now: float) -> Answers:
    """What is wrong with a watch, by its last figures and its signs of life."""
    health, live = snapshot.health, list(snapshot.health.stuck)
    if state.stopping_since:
        return Answers([], ["the watch is ending"])
    what = _WHAT[state.phase]
    if state.phase is Phase.DELIVERING:
        what += f" ({' or '.join(snapshot.handled)})" if snapshot.handled else ""
    if now - state.tried_at > watch_stats.LATE_SECONDS:
        live.insert(0, f"{what} has stood for {now - state.tried_at:.0f} s")
    if state.phase is Phase.STANDING_BY:
        return Answers(live, [*live, f"standing by: {health.trouble or _ANOTHERS}"])
    ready = list(live)
    if not live and now - state.progressed_at > watch_stats.LATE_SECONDS:
        ready.append(f"{what} is tried again and again, for {now - state.progressed_at:.0f} s")
    return Answers(live, [*ready, *health.unready])


class Awake:
    """Since when this process has not stood still, as it does with all of a machine that sleeps.

    `look` is to be called often.
    """

    def __init__(self, clock: Clock = CLOCK) -> None:
        self._clock = clock
        self._looked_at = self._since = clock.monotonic()

    def look(self) -> float:
        """Since when, in monotonic seconds."""
        now = self._clock.monotonic()
        if now - self._looked_at > _STILL_SECONDS:
            self._since = now
        self._looked_at = now
        return self._since


def answering_probes(
    metrics: Application, latest: Callable[[], WatchStats], heartbeat: Heartbeat, awake: Awake
) -> Application:
    """An application that answers /livez and /readyz beside /metrics (and /)."""

    def application(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        path, method = environ["PATH_INFO"], environ["REQUEST_METHOD"]
        if path in ("/", "/metrics") and method != "HEAD":
            return metrics(environ, start)
        status, text = "200 OK", "ok"
        headers = [("Content-Type", "text/plain; charset=utf-8"), ("Cache-Control", "no-store")]
        if method not in ("GET", "HEAD"):
            status, text = "405 Method Not Allowed", f"use {_METHODS}"
            headers.append(("Allow", _METHODS))
        elif path in ("/livez", "/readyz"):
            since = awake.look()
            live, ready = judge(latest(), heartbeat.state().not_before(since), time.monotonic())
            if wrong := live if path == "/livez" else ready:
                status, text = "503 Service Unavailable", "\n".join(wrong)
        elif path not in ("/", "/metrics"):
            status, text = "404 Not Found", "there are /metrics, /livez and /readyz"
        body = f"{text}\n".encode()
        start(status, [*headers, ("Content-Length", str(len(body)))])
        return [] if method == "HEAD" else [body]

    return application


_CLIENT_SECONDS = 10.0
_FAMILIES: Final = {Instrument.COUNTER: CounterMetricFamily, Instrument.GAUGE: GaugeMetricFamily}


class SnapshotCollector(Collector):
    """The last snapshot, as metrics."""

    def __init__(self, latest: LastFigures) -> None:
        self._latest = latest

    def collect(self) -> Iterator[Metric]:
        """Every metric that there is; those with labels may have no series yet."""
        for series in self._latest.series():
            made = _FAMILIES[series.kind](series.name, series.text, labels=series.labels)
            for labels, value in series.values.items():
                made.add_metric(labels, value)
            yield made


class _Request(WSGIRequestHandler):
    timeout = _CLIENT_SECONDS

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
        """Who scrapes is of no interest."""


class _Server(ThreadingMixIn, WSGIServer):
    """Each request in a thread of its own: one that hangs keeps nobody else."""

    daemon_threads = True

    def __init__(self, listening: socket.socket) -> None:
        self.awake = Awake()
        host, port = listening.getsockname()[:2]
        super().__init__((host, port), _Request, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        # As server_bind does, which would also ask the name service for the host's name.
        self.server_name, self.server_port = host, port
        self.setup_environ()

    def service_actions(self) -> None:
        """Called twice a second by `serve_forever`."""
        self.awake.look()

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away in the middle is no news."""


@contextmanager
def answering(
    listening: socket.socket, latest: LastFigures, heartbeat: Heartbeat
) -> Iterator[None]:
    """Answer every request that comes to this socket."""
    registry = CollectorRegistry()
    registry.register(SnapshotCollector(latest))
    server = _Server(listening)
    app = make_wsgi_app(registry)
    server.set_app(answering_probes(app, lambda: latest.snapshot, heartbeat, server.awake))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield
    finally:
        server.server_close()
