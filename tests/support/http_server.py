"""The one HTTP server that tests play: on loopback, its answers are a function's."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self


class Asked(NamedTuple):
    """A request; its headers in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


class Answered(NamedTuple):
    """An answer; one in parts is chunked, and one without a status hangs up."""

    status: int
    body: bytes | Iterable[bytes] = b""
    headers: Mapping[str, str] = {}


class PlayedServer(ThreadingHTTPServer):
    """`with PlayedServer() as server:`: keeps what it is asked, and says 204 unless told better."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(
        self,
        answer: Callable[[Asked], Answered] = lambda asked: Answered(204),
        *,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer = answer
        self.asked: list[Asked] = []
        if tls is not None:
            self.socket = tls.wrap_socket(
                self.socket, server_side=True, do_handshake_on_connect=False
            )
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has gone, or does not trust us, is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    server: PlayedServer

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        asked = Asked(self.command, self.path, headers, body)
        self.server.asked.append(asked)
        status, told, more = self.server.answer(asked)
        if not status:
            self.close_connection = True
            return
        self.send_response_only(status)
        for name, value in more.items():
            self.send_header(name, value)
        if isinstance(told, bytes):
            self.send_header("Content-Length", str(len(told)))
            self.end_headers()
            self.wfile.write(told)
            return
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.close_connection = True
        for part in told:
            self.wfile.write(b"%x\r\n%b\r\n" % (len(part), part))

    do_GET = do_POST = do_PUT = do_DELETE = _answer

    def log_message(self, *arguments: object) -> None:
        """Not on the test's output."""
