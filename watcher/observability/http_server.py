"""The HTTP server of the metrics process: /metrics, /livez and /readyz."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterable
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from prometheus_client import CollectorRegistry, make_wsgi_app

from watcher.clock import CLOCK, Clock
from watcher.observability.heartbeat import Heartbeat, assess
from watcher.observability.metrics import PrometheusCollector
from watcher.observability.watch_stats import LatestStats

_METHODS = "GET, HEAD"
# The gap between checks, normally half a second, that means a suspension.
_SUSPENDED_SECONDS = 5.0
# The timeout of a silent client.
_CLIENT_SECONDS = 10.0


class SuspendDetector:
    """Detects that this process was suspended, as on a sleeping laptop.

    Call `check` often.
    """

    def __init__(self, clock: Clock = CLOCK) -> None:
        self._clock = clock
        self._checked_at = self._since = clock.monotonic()

    def check(self) -> float:
        """Returns the (monotonic) time since which the process has run without a break."""
        now = self._clock.monotonic()
        if now - self._checked_at > _SUSPENDED_SECONDS:
            self._since = now
        self._checked_at = now
        return self._since


class _Request(WSGIRequestHandler):
    timeout = _CLIENT_SECONDS

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
        """Logs nothing: scrapes are frequent."""


class _Server(ThreadingMixIn, WSGIServer):
    """Serves each request in its own thread, so that a slow one blocks no other."""

    daemon_threads = True

    def __init__(self, listening: socket.socket, latest: LatestStats, heartbeat: Heartbeat) -> None:
        self._latest = latest
        self._heartbeat = heartbeat
        self._suspended = SuspendDetector()
        host, port = listening.getsockname()[:2]
        super().__init__((host, port), _Request, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        # As server_bind does, but without its lookup of the host's name.
        self.server_name, self.server_port = host, port
        self.setup_environ()
        registry = CollectorRegistry()
        registry.register(PrometheusCollector(latest))
        self._metrics: WSGIApplication = make_wsgi_app(registry)
        self.set_app(self._answer)

    def _answer(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        """Answers /livez, /readyz, /metrics and /."""
        path, method = environ["PATH_INFO"], environ["REQUEST_METHOD"]
        if path in ("/", "/metrics") and method != "HEAD":
            return self._metrics(environ, start)
        status, text = "200 OK", "ok"
        headers = [("Content-Type", "text/plain; charset=utf-8"), ("Cache-Control", "no-store")]
        if method not in ("GET", "HEAD"):
            status, text = "405 Method Not Allowed", f"use {_METHODS}"
            headers.append(("Allow", _METHODS))
        elif path in ("/livez", "/readyz"):
            state = self._heartbeat.state().not_before(self._suspended.check())
            answers = assess(self._latest.stats, state, time.monotonic())
            is_ready = path == "/readyz"
            if wrong := answers.ready if is_ready else answers.live:
                status, text = "503 Service Unavailable", "\n".join(wrong)
            elif is_ready and answers.remark:
                text = f"ok, {answers.remark}"
        elif path not in ("/", "/metrics"):
            status, text = "404 Not Found", "there are /metrics, /livez and /readyz"
        body = f"{text}\n".encode()
        start(status, [*headers, ("Content-Length", str(len(body)))])
        return [] if method == "HEAD" else [body]

    def service_actions(self) -> None:
        """Checks for a suspension; `serve_forever` calls it twice a second."""
        self._suspended.check()

    def handle_error(self, request: object, client_address: object) -> None:
        """Logs nothing: a client may go away at any time."""


def answer_requests(listening: socket.socket, latest: LatestStats, heartbeat: Heartbeat) -> None:
    """Answers the requests to this socket, in a thread, until the process ends."""
    server = _Server(listening, latest, heartbeat)
    threading.Thread(target=server.serve_forever, daemon=True).start()
