"""The HTTP server of the metrics process: /metrics, /livez and /readyz."""

from __future__ import annotations

import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from watcher.observability.heartbeat import Heartbeat, assess
from watcher.observability.metrics import PrometheusCollector
from watcher.observability.watch_stats import WatchStats

# The timeout of a silent client.
_CLIENT_SECONDS = 10.0


class MetricsServer(ThreadingHTTPServer):
    """Answers the requests to a socket, each in its own thread: a slow one blocks no other."""

    def __init__(self, listening: socket.socket, heartbeat: Heartbeat) -> None:
        super().__init__(listening.getsockname()[:2], _Request, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self.heartbeat = heartbeat
        self.stats = WatchStats()
        self.registry = CollectorRegistry()
        self.registry.register(PrometheusCollector(lambda: self.stats))
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request: object, client_address: object) -> None:
        """Logs nothing: a client may go away at any time."""


class _Request(BaseHTTPRequestHandler):
    server: MetricsServer
    timeout = _CLIENT_SECONDS

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
        """Logs nothing: scrapes are frequent."""

    def do_GET(self) -> None:
        """Answers /livez, /readyz, /metrics and /."""
        path = self.path.partition("?")[0]
        if path in ("/", "/metrics"):
            encode, kind = choose_encoder(self.headers.get("Accept", ""))
            self._answer(200, encode(self.server.registry), kind)
        elif path in ("/livez", "/readyz"):
            answers = assess(self.server.stats, self.server.heartbeat)
            is_ready = path == "/readyz"
            wrong = answers.ready if is_ready else answers.live
            well = f"ok, {answers.remark}" if is_ready and answers.remark else "ok"
            text = "\n".join(wrong) or well
            self._answer(503 if wrong else 200, f"{text}\n".encode())
        else:
            self._answer(404, b"there are /metrics, /livez and /readyz\n")

    do_HEAD = do_GET

    def _answer(self, status: int, body: bytes, kind: str = "text/plain; charset=utf-8") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
