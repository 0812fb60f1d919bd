"""HTTP/1.1 connections that are kept alive, for small requests and answers of known length.

An idle shard is asked once a second, and there may be hundreds: what a general client does around
such a call costs ten times the call.
"""

from __future__ import annotations

import contextlib
import functools
import re
import select
import socket
import ssl
import time
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from botocore.httpsession import create_urllib3_context

_RECEIVE_BYTES = 64 * 1024
_LARGEST_HEAD = 64 * 1024
# DynamoDB's answers end at 1 MB or a little more; far beyond is no answer of DynamoDB's.
_LARGEST_BODY = 64 * 1024 * 1024
_STATUS = re.compile(r"HTTP/1\.1 ([2-5]\d\d)(?: |$)")


class Answer(NamedTuple):
    """A whole answer, its headers' names in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


class Posted:
    """What was sent, and whose answer may be taken, once; else its connection is closed."""

    def __init__(
        self, connected: socket.socket, receive: Callable[[socket.socket], Answer | None]
    ) -> None:
        self._connected: socket.socket | None = connected
        self._receive = receive
        self._unwanted = _at_its_end(self, connected.close)

    def answer(self) -> Answer | None:
        """The answer; None where it is of another make.

        Raises OSError where the connection fails, or ends before the answer does; TimeoutError
        where nothing comes for too long, OverdueAnswerError where the whole of it takes too long.
        """
        connected, self._connected = self._connected, None
        self._unwanted.detach()
        if connected is None:
            raise ConnectionError("closed")
        return self._receive(connected)

    def close(self) -> None:
        """The answer is not wanted any more."""
        self._connected = None
        self._unwanted()


class OverdueAnswerError(TimeoutError):
    """Something comes now and then, but not the end of it."""


class HTTPConnections:
    """Posts to one URL, and knows the plain case only; for several threads, side by side.

    It keeps as many connections as there were posts at the same time. For an answer of another make
    (chunked, compressed, HTTP/1.0) the caller needs a general client; `usable` turns False where it
    would need one every time.
    """

    def __init__(
        self,
        url: str,
        ca_file: str,
        connect_seconds: float,
        read_seconds: float,
        whole_seconds: float,
    ) -> None:
        self._free: list[socket.socket] = []  # the one used last is the first to be used again
        _at_its_end(self, partial(_close_all, self._free))
        parts = urlsplit(url)
        self.host = parts.netloc
        self.usable = parts.scheme in ("http", "https") and "@" not in parts.netloc
        if parts.scheme == "https":
            with contextlib.suppress(OSError):  # the handshake will say what is wrong
                trusting(ca_file)
        self._address = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
        self._path = parts.path or "/"
        self._ca_file = ca_file if parts.scheme == "https" else None
        self._connect_seconds = connect_seconds
        self._read_seconds = read_seconds
        self._whole_seconds = whole_seconds

    def post(self, headers: Mapping[str, str], body: bytes) -> Posted:
        """Send it, and wait for nothing. Raises OSError where the connection fails."""
        lines = [f"POST {self._path} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        lines.append(f"Content-Length: {len(body)}\r\n\r\n")
        connected = self._connected()
        try:
            connected.sendall("\r\n".join(lines).encode("latin-1") + body)
        except BaseException:
            connected.close()
            raise
        return Posted(connected, self._receive)

    def _receive(self, connected: socket.socket) -> Answer | None:
        """What comes there; then the connection is free again, or closed."""
        deadline = time.monotonic() + self._whole_seconds
        answer = None
        try:
            answer = self._answer(connected, deadline)
            return answer
        except TimeoutError:
            if time.monotonic() < deadline:
                raise
            text = f"no whole answer within {self._whole_seconds:g} s"
            raise OverdueAnswerError(text) from None
        finally:
            # What is left of a half-read answer must not be taken for the next one.
            if answer is None or answer.headers.get("connection", "").lower() == "close":
                connected.close()
            else:
                self._free.append(connected)

    def close(self) -> None:
        """Close the connections; the next post opens another."""
        _close_all(self._free)

    def _take(self) -> socket.socket | None:
        return _taken(self._free)

    def _connected(self) -> socket.socket:
        """An open connection; one that the peer has closed meanwhile is readable."""
        while (connected := self._take()) is not None:
            if not _has_something(connected):
                connected.settimeout(self._read_seconds)
                return connected
            connected.close()
        connected = socket.create_connection(self._address, self._connect_seconds)
        try:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if self._ca_file is not None:
                context = trusting(self._ca_file)
                connected = context.wrap_socket(connected, server_hostname=self._address[0])
            connected.settimeout(self._read_seconds)
        except BaseException:
            connected.close()
            raise
        return connected

    def _be_patient(self, connected: socket.socket, deadline: float) -> None:
        """Wait for the next bytes, but no longer than is left for the whole."""
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        if left < self._read_seconds:
            connected.settimeout(left)

    def _answer(self, connected: socket.socket, deadline: float) -> Answer | None:
        received = b""
        while (end := received.find(b"\r\n\r\n")) < 0:
            if len(received) > _LARGEST_HEAD:
                return None
            self._be_patient(connected, deadline)
            received += _some(connected.recv(_RECEIVE_BYTES))
        first, *lines = received[:end].decode("latin-1").split("\r\n")
        headers = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        status = _STATUS.match(first)
        length = headers.get("content-length", "")
        encoded = "transfer-encoding" in headers or "content-encoding" in headers
        if not status or encoded or not length.isdecimal() or int(length) > _LARGEST_BODY:
            self.usable = status is not None and int(status[1]) != 200
            return None
        body = received[end + 4 :]
        missing = int(length) - len(body)
        if missing < 0:
            raise ConnectionError("more came than was announced")
        whole = b"".join((body, self._rest(connected, missing, deadline)))
        return Answer(int(status[1]), headers, whole)

    def _rest(self, connected: socket.socket, missing: int, deadline: float) -> bytearray:
        """What did not come with the head."""
        rest = bytearray(missing)
        room = memoryview(rest)
        while room:
            self._be_patient(connected, deadline)
            count = connected.recv_into(room)
            _some(count)
            room = room[count:]
        return rest


_T = TypeVar("_T")


def _some(received: _T) -> _T:
    if not received:
        raise ConnectionError("the connection ended before the answer did")
    return received


def _at_its_end(owner: object, close: Callable[[], object]) -> weakref.finalize[..., Any]:
    """Close when its owner is gone, or the program ends: of a circle, before what is in it ends.

    By `__del__`, a connection that is older than its owner would end first, unclosed.
    """
    return weakref.finalize(owner, close)


def _taken(free: list[socket.socket]) -> socket.socket | None:
    try:
        return free.pop()
    except IndexError:  # not asked before: another thread may be the one to take the last
        return None


def _close_all(free: list[socket.socket]) -> None:
    while (connected := _taken(free)) is not None:
        connected.close()


def _has_something(connected: socket.socket) -> bool:
    # Not select(), which knows no descriptor above 1,023.
    poll = select.poll()
    poll.register(connected, select.POLLIN)
    return bool(poll.poll(0))


@functools.cache
def trusting(ca_file: str) -> ssl.SSLContext:
    """A context that trusts these certificates; made before a fork, its memory is shared.

    As strict as botocore's, no stricter: Python 3.13's default one refuses what companies' TLS
    inspection makes. (botocore checks the name by itself.)
    """
    context: ssl.SSLContext = create_urllib3_context()
    context.check_hostname = True
    context.load_verify_locations(ca_file)
    return context
