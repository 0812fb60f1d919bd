"""HTTP/1.1 connections that are kept alive, for small requests and answers of known length.

An idle shard is asked once a second, and there may be hundreds: what a general client does around
such a call costs ten times the call. Python's own `http.client` takes 91 µs of CPU for what takes
35 here: its headers are read by the parser for e-mails.
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
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from botocore.httpsession import create_urllib3_context

from watcher.errors import UnexpectedAnswerError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_LARGEST_HEAD_BYTES = 64 * 1024
# DynamoDB's answers end at 1 MB or a little more; far beyond is no answer of DynamoDB's.
LARGEST_BODY_BYTES = 64 * 1024 * 1024
_BUFFER_BYTES = 64 * 1024
_STATUS = re.compile(r"HTTP/1\.1 ([2-5]\d\d)(?: |$)")


class Response(NamedTuple):
    """A whole answer, its headers' names in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


def too_large(most_bytes: int) -> str:
    """Returns a line about an answer of more bytes."""
    most = f"{most_bytes // 1024**2} MB"
    return (
        f"an answer of more than {most}: is it DynamoDB that answers there, or a proxy or gateway?"
    )


class OverdueAnswerError(TimeoutError):
    """Something comes now and then, but not the end of it."""


class Timeouts(NamedTuple):
    """How long an HTTP call may take."""

    connect_seconds: float
    read_seconds: float
    """Between two pieces of an answer."""
    whole_seconds: float
    """For an answer from its first byte to its last: one that drips never ends else."""


class HTTPConnections:
    """Posts to one URL, and knows the plain case only; for several threads, side by side.

    It keeps as many connections as there were posts at the same time. For an answer of another make
    (chunked, compressed, HTTP/1.0) the caller needs a general client; `usable` turns False where it
    would need one every time.
    """

    def __init__(self, url: str, *, ca_file: str, timeouts: Timeouts) -> None:
        self._idle: list[_Connection] = []  # the one used last is the first to be used again
        _close_at_end(self, partial(_close_all, self._idle))
        parts = urlsplit(url)
        self.host = parts.netloc
        self.usable = parts.scheme in ("http", "https") and "@" not in parts.netloc
        if parts.scheme == "https":
            with contextlib.suppress(OSError):  # the handshake will say what is wrong
                tls_context(ca_file)
        self._address = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
        self._path = parts.path or "/"
        self._ca_file = ca_file if parts.scheme == "https" else None
        self._timeouts = timeouts

    def post(self, headers: Mapping[str, str], body: bytes) -> PendingResponse:
        """Send a request, and wait for nothing. Raises OSError where the connection fails."""
        lines = [f"POST {self._path} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        lines.append(f"Content-Length: {len(body)}\r\n\r\n")
        connection = self._idle_connection() or self._new_connection()
        try:
            connection.send("\r\n".join(lines).encode("latin-1") + body)
        except BaseException:
            connection.close()
            raise
        return PendingResponse(self, connection)

    def close(self) -> None:
        """Close the connections; the next post opens another."""
        _close_all(self._idle)

    def receive(self, connection: _Connection) -> Response | None:
        """Wait for the answer; then the connection is idle again, or closed.

        None where the answer is of another make. Raises as `PendingResponse.wait`.
        """
        response = None
        try:
            response = self._received(connection)
            return response
        finally:
            # What is left of a half-read answer must not be taken for the next one.
            if response is None or response.headers.get("connection", "").lower() == "close":
                connection.close()
            else:
                self._idle.append(connection)

    def _received(self, connection: _Connection) -> Response | None:
        connection.start_receiving()
        if (head := connection.head()) is None:
            return None
        first, headers = head
        status = _STATUS.match(first)
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
    """A request was sent; its answer may be taken, once, else its connection is closed."""

    def __init__(self, connections: HTTPConnections, connection: _Connection) -> None:
        self._connections = connections
        self._connection: _Connection | None = connection
        self._close_unwanted = _close_at_end(self, connection.close)

    def wait(self) -> Response | None:
        """Wait for the answer; None where it is of another make.

        Raises OSError where the connection fails, or ends before the answer does; TimeoutError
        where nothing comes for too long, OverdueAnswerError where the whole of it takes too long.
        """
        connection, self._connection = self._connection, None
        self._close_unwanted.detach()
        if connection is None:
            raise ConnectionError("closed")
        return self._connections.receive(connection)

    def close(self) -> None:
        """Close the connection: the answer is not wanted any more."""
        self._connection = None
        self._close_unwanted()


class _Connection:
    """A connected socket, and what is read of it through a buffer."""

    def __init__(self, connected: socket.socket, timeouts: Timeouts) -> None:
        self._socket = connected
        self._timeouts = timeouts
        self._incoming = _Incoming(connected, timeouts)
        self._reader = io.BufferedReader(self._incoming, _BUFFER_BYTES)

    def send(self, request: bytes) -> None:
        """Send all of it."""
        self._socket.settimeout(self._timeouts.read_seconds)
        self._socket.sendall(request)

    def start_receiving(self) -> None:
        """Let the time of one answer begin."""
        self._incoming.begin()

    def head(self) -> tuple[str, dict[str, str]] | None:
        """Receive the status line and the headers; None where they don't end."""
        lines: list[str] = []
        room = _LARGEST_HEAD_BYTES
        while (line := self._reader.readline(room)) != b"\r\n":
            if not line.endswith(b"\n"):
                if len(line) == room:
                    return None
                raise _ended()
            room -= len(line)
            lines.append(line.decode("latin-1"))
        headers = {}
        for text in lines[1:]:
            name, _, value = text.partition(":")
            headers[name.lower()] = value.strip()
        self._incoming.count -= _LARGEST_HEAD_BYTES - room + len(line)
        return lines[0].rstrip("\r\n") if lines else "", headers

    def body(self, length: int) -> bytes:
        """Receive what follows the head, to its end."""
        body = self._reader.read(length)
        if len(body) < length:
            raise _ended()
        if self._incoming.count != length:
            raise ConnectionError("more came than was announced")
        return body

    def is_readable(self) -> bool:
        """True if unrequested data has come: most often, the connection's end."""
        # Not select(), which knows no descriptor above 1,023.
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(0))

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


class _Incoming(io.RawIOBase):
    """The bytes that a socket receives; each wait ends with that for a piece, or for the whole."""

    def __init__(self, connected: socket.socket, timeouts: Timeouts) -> None:
        self._socket = connected
        self._timeouts = timeouts
        self._deadline = 0.0
        self.count = 0
        """How many bytes have come of this answer."""

    def begin(self) -> None:
        """Let the time of one answer begin."""
        self._deadline = time.monotonic() + self._timeouts.whole_seconds
        self.count = 0

    def readable(self) -> bool:
        """See `io.RawIOBase`."""
        return True

    def readinto(self, room: WriteableBuffer) -> int:
        """Receive what there is; 0 at the end. Raises TimeoutError, OverdueAnswerError."""
        left = self._deadline - time.monotonic()
        if left < self._timeouts.read_seconds:
            if left <= 0:
                raise self._overdue()
            self._socket.settimeout(left)
        try:
            count = self._socket.recv_into(room)
        except TimeoutError:
            if time.monotonic() < self._deadline:
                raise
            raise self._overdue() from None
        self.count += count
        return count

    def _overdue(self) -> OverdueAnswerError:
        return OverdueAnswerError(f"no whole answer within {self._timeouts.whole_seconds:g} s")


def _ended() -> ConnectionError:
    return ConnectionError("the connection ended before the answer did")


def _close_at_end(owner: object, close: Callable[[], object]) -> weakref.finalize[[], object]:
    """Close when its owner is gone, or the program ends: of a circle, before what is in it ends.

    By `__del__`, a connection that is older than its owner would end first, unclosed.
    """
    return weakref.finalize(owner, close)


def _pop(idle: list[_Connection]) -> _Connection | None:
    try:
        return idle.pop()
    except IndexError:  # not asked before: another thread may be the one to take the last
        return None


def _close_all(idle: list[_Connection]) -> None:
    while (connection := _pop(idle)) is not None:
        connection.close()


@functools.cache
def tls_context(ca_file: str) -> ssl.SSLContext:
    """A context that trusts these certificates; made before a fork, its memory is shared.

    As strict as botocore's, no stricter: Python 3.13's default one refuses what companies' TLS
    inspection makes. (botocore checks the name by itself.)
    """
    context: ssl.SSLContext = create_urllib3_context()
    context.check_hostname = True
    context.load_verify_locations(ca_file)
    return context
