"""HTTP/1.1 keep-alive connections for small requests and answers of known length.

An idle shard is polled once a second, and there may be hundreds: a general client's overhead is ten
times the call itself. Python's own `http.client` takes 91 µs of CPU for what takes 35 here: it
parses headers with the e-mail parser.
"""

from __future__ import annotations

import contextlib
import functools
import io
import re
import select
import socket
import ssl
import time
import weakref
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from botocore.httpsession import create_urllib3_context

from watcher.errors import UnexpectedAnswerError

# DynamoDB's answers have a little over 1 MB at most; a much larger one is not DynamoDB's.
LARGEST_BODY_BYTES = 64 * 1024 * 1024
# The longest head of an answer.
_BUFFER_BYTES = 64 * 1024
_STATUS = re.compile(r"HTTP/1\.1 ([2-5]\d\d)(?: |$)")


class Response(NamedTuple):
    """A whole answer, with its headers' names in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


def too_large(most_bytes: int) -> str:
    """Returns a line about an answer of more than `most_bytes`."""
    most = f"{most_bytes // 1024**2} MB"
    return f"an answer of more than {most}: does DynamoDB answer there, or a proxy?"


class OverdueAnswerError(TimeoutError):
    """Raised for an answer whose bytes keep coming without an end."""


class Timeouts(NamedTuple):
    """The time limits of an HTTP call."""

    connect_seconds: float
    read_seconds: float
    """The limit between two pieces of an answer."""
    whole_seconds: float
    """The limit from an answer's first byte to its last."""


class HTTPConnections:
    """Posts to one URL, for plain answers only; several threads may use it.

    It keeps as many connections as there were simultaneous posts. For other answers (chunked,
    compressed, HTTP/1.0) the caller needs a general client; `usable` turns False where that would
    be every time.
    """

    def __init__(self, url: str, *, ca_file: str, timeouts: Timeouts) -> None:
        self._idle: list[_Connection] = []  # the last used one is used next
        # When it is garbage, or the program ends: in a reference cycle `__del__` is too late, as
        # the socket may end first, unclosed.
        weakref.finalize(self, _close_all, self._idle)
        parts = urlsplit(url)
        self.host = parts.netloc
        self.usable = parts.scheme in ("http", "https") and "@" not in parts.netloc
        if parts.scheme == "https":
            with contextlib.suppress(OSError):  # the handshake will raise it again
                tls_context(ca_file)
        self._address = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
        self._path = parts.path or "/"
        self._ca_file = ca_file if parts.scheme == "https" else None
        self._timeouts = timeouts

    def post(self, headers: Mapping[str, str], body: bytes) -> PendingResponse:
        """Sends a request, without waiting. Raises OSError where the connection fails."""
        return PendingResponse(self, self._sent(headers, body))

    def call(self, headers: Mapping[str, str], body: bytes) -> Response | None:
        """Sends a request, and waits for its answer; as `post`, and then `PendingResponse.wait`."""
        return self.receive(self._sent(headers, body))

    def _sent(self, headers: Mapping[str, str], body: bytes) -> _Connection:
        lines = [f"POST {self._path} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        lines.append(f"Content-Length: {len(body)}\r\n\r\n")
        connection = self._idle_connection() or self._new_connection()
        try:
            connection.send("\r\n".join(lines).encode("latin-1") + body)
        except BaseException:
            connection.close()
            raise
        return connection

    def close(self) -> None:
        """Closes the connections; the next post opens new ones."""
        _close_all(self._idle)

    def receive(self, connection: _Connection) -> Response | None:
        """Waits for the answer; then the connection is idle again, or closed.

        None for an answer that is not plain. Raises as `PendingResponse.wait`.
        """
        response = None
        try:
            response = self._received(connection)
            return response
        finally:
            # The rest of a half-read answer must not be taken for the next one.
            if response is None or response.headers.get("connection", "").lower() == "close":
                connection.close()
            else:
                self._idle.append(connection)

    def _received(self, connection: _Connection) -> Response | None:
        if (lines := connection.head()) is None:
            return None
        status = _STATUS.match(lines[0])
        headers = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        length = headers.get("content-length", "")
        encoded = "transfer-encoding" in headers or "content-encoding" in headers
        if length.isdecimal() and len(length) < 20 and int(length) > LARGEST_BODY_BYTES:
            raise UnexpectedAnswerError(too_large(LARGEST_BODY_BYTES))
        if not status or encoded or not length.isdecimal():
            self.usable = status is not None and int(status[1]) != 200
            return None
        return Response(int(status[1]), headers, connection.body(int(length)))

    def _idle_connection(self) -> _Connection | None:
        while (connection := _pop(self._idle)) is not None:
            if not connection.is_readable():
                return connection
            connection.close()  # by the peer, meanwhile
        return None

    def _new_connection(self) -> _Connection:
        connected = socket.create_connection(self._address, self._timeouts.connect_seconds)
        try:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if self._ca_file is not None:
                context = tls_context(self._ca_file)
                connected = context.wrap_socket(connected, server_hostname=self._address[0])
            return _Connection(connected, self._timeouts)
        except BaseException:
            connected.close()
            raise


class PendingResponse:
    """A sent request; its answer can be taken once, else its connection is closed."""

    def __init__(self, connections: HTTPConnections, connection: _Connection) -> None:
        self._connections = connections
        self._connection: _Connection | None = connection
        self._close_unwanted = weakref.finalize(self, connection.close)

    def wait(self) -> Response | None:
        """Waits for the answer; None where it is not plain.

        Raises OSError where the connection fails, or ends before the answer does; TimeoutError
        where no byte comes for too long, OverdueAnswerError where the whole answer takes too long.
        """
        connection, self._connection = self._connection, None
        self._close_unwanted.detach()
        if connection is None:
            raise ConnectionError("closed")
        return self._connections.receive(connection)

    def close(self) -> None:
        """Closes the connection: the answer is no longer wanted."""
        self._connection = None
        self._close_unwanted()


class _Connection:
    """A connected socket, which receives an answer within the limits for a piece and the whole."""

    def __init__(self, connected: socket.socket, timeouts: Timeouts) -> None:
        self._socket = connected
        self._timeouts = timeouts
        self._poll = select.poll()  # not select(), which is limited to descriptors up to 1,023
        self._poll.register(connected, select.POLLIN)
        self._deadline = 0.0
        self._buffer = bytearray(_BUFFER_BYTES)
        self._rest = slice(0)  # in the buffer: what has come behind the head

    def send(self, request: bytes) -> None:
        """Sends the whole request."""
        if self._socket.gettimeout() != self._timeouts.read_seconds:  # to set it is a system call
            self._socket.settimeout(self._timeouts.read_seconds)
        self._socket.sendall(request)

    def head(self) -> list[str] | None:
        """Receives the status line and the headers; None if they are longer than the buffer."""
        self._deadline = time.monotonic() + self._timeouts.whole_seconds
        view, count, end = memoryview(self._buffer), 0, -1
        while end < 0:
            if count == len(view):
                return None
            count += self._receive(view[count:])
            end = self._buffer.find(b"\r\n\r\n", 0, count)
        self._rest = slice(end + 4, count)
        return str(view[:end], "latin-1").split("\r\n")

    def body(self, length: int) -> bytes:
        """Receives the `length` bytes behind the head."""
        view, begun = memoryview(self._buffer), self._buffer[self._rest]
        if len(begun) > length:
            raise ConnectionError("more came than was announced")
        body = io.BytesIO()  # which gives its bytes away without a copy
        missing = length - body.write(begun)
        while missing:
            count = self._receive(view[:missing])
            missing -= body.write(view[:count])
        return body.getvalue()

    def _receive(self, room: memoryview) -> int:
        """Receives available bytes. Raises ConnectionError, TimeoutError, OverdueAnswerError."""
        remaining = self._deadline - time.monotonic()
        if remaining < self._timeouts.read_seconds:
            if remaining <= 0:
                raise self._overdue()
            self._socket.settimeout(remaining)
        try:
            count = self._socket.recv_into(room)
        except TimeoutError:
            if time.monotonic() < self._deadline:
                raise
            raise self._overdue() from None
        if not count:
            raise ConnectionError("the connection ended before the answer did")
        return count

    def _overdue(self) -> OverdueAnswerError:
        return OverdueAnswerError(f"no whole answer within {self._timeouts.whole_seconds:g} s")

    def is_readable(self) -> bool:
        """True if unrequested data has come: usually the connection's end."""
        return bool(self._poll.poll(0))

    def close(self) -> None:
        """Closes the socket."""
        self._socket.close()


def _pop(idle: list[_Connection]) -> _Connection | None:
    try:
        return idle.pop()
    except IndexError:  # no check before: another thread may take the last one
        return None


def _close_all(idle: list[_Connection]) -> None:
    while (connection := _pop(idle)) is not None:
        connection.close()


@functools.cache
def tls_context(ca_file: str) -> ssl.SSLContext:
    """Returns a context that trusts these certificates; made before a fork, its memory is shared.

    It is as strict as botocore's, no stricter: Python 3.13's default one refuses companies' TLS
    inspection. (botocore checks the host name itself.)
    """
    context: ssl.SSLContext = create_urllib3_context()
    context.check_hostname = True
    context.load_verify_locations(ca_file)
    return context
