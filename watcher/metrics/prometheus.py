"""A watch's figures as Prometheus reads them, and the HTTP server that answers with them."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from socketserver import ThreadingMixIn
from typing import Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from watcher.engine.pulse import Pulse
from watcher.metrics.probes import Awake, answering_probes
from watcher.metrics.series import Instrument, LastFigures

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
def answering(listening: socket.socket, latest: LastFigures, pulse: Pulse) -> Iterator[None]:
    """Answer every request that comes to this socket."""
    registry = CollectorRegistry()
    registry.register(SnapshotCollector(latest))
    server = _Server(listening)
    app = make_wsgi_app(registry)
    server.set_app(answering_probes(app, lambda: latest.snapshot, pulse, server.awake))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield
    finally:
        server.server_close()
