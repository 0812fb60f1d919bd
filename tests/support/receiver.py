"""An HTTP server on loopback that keeps what it is sent."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self


class _Keep(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        assert isinstance(self.server, _Server)
        self.server.receiver.bodies.append(body)
        self.server.receiver.headers.append(dict(self.headers))
        self.send_response(self.server.receiver.status)
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    receiver: Receiver


class Receiver:
    """`with Receiver() as receiver:`: answers each POST with `status`."""

    def __init__(self, status: int = 204) -> None:
        self.status = status
        self.bodies: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self._server = _Server(("127.0.0.1", 0), _Keep)
        self._server.receiver = self
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
