"""The sockets: HTTP/1.1 with keep-alive, written by hand because http.server is too slow."""

import asyncio
import ctypes
import re
import socket
import struct
import sys
import threading
from email.utils import formatdate
from http.client import responses

from .service import Reply, Service

_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)", re.IGNORECASE)
_TARGET = re.compile(rb"\r\nx-amz-target:[ \t]*([^\r]*)", re.IGNORECASE)
_ACCESS_KEY = re.compile(rb"\r\nauthorization:[^\r]*Credential=([^/\r]*)", re.IGNORECASE)
_CLOSE = re.compile(rb"\r\nconnection:[ \t]*close", re.IGNORECASE)
_DRIP_SECONDS = 0.3


class Server:
    """Serves one Service from a thread of its own; `lock` guards the Service."""

    def __init__(self, service: Service, lock: threading.RLock) -> None:
        self.service = service
        self.lock = lock
        self.in_flight = 0
        self.connections: set[_Connection] = set()
        self._loop = asyncio.new_event_loop()
        self._socket = socket.socket()
        self._thread = threading.Thread(target=self._serve, name="simulator", daemon=True)
        self._started = threading.Event()
        self._requests = 0
        self._date = (0, "")

    def start(self, port: int = 0) -> int:
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", port))
        self._socket.listen(1024)
        self._thread.start()
        self._started.wait()
        return int(self._socket.getsockname()[1])

    def stop(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        listening = self._loop.create_server(lambda: _Connection(self), sock=self._socket)
        server = self._loop.run_until_complete(listening)
        self._loop.call_soon(self._started.set)
        self._loop.run_forever()
        # Forked children may hold this socket too: only shutdown ends it for all of them.
        self._socket.shutdown(socket.SHUT_RDWR)
        # A connection accepted a moment ago takes a task until it is one of ours: a server that
        # is closed would leave it open.
        self._loop.remove_reader(self._socket)
        while accepting := asyncio.all_tasks(self._loop):
            self._loop.run_until_complete(asyncio.wait(accepting))
        server.close()
        for _ in range(10):
            for connection in list(self.connections):
                connection.reset()
            self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    def head(self, status: int, body: bytes) -> bytes:
        self._requests += 1
        now = self.service.date()
        if self._date[0] != now:
            self._date = (now, formatdate(now, usegmt=True))
        return (
            f"HTTP/1.1 {status} {responses[status]}\r\n"
            f"Server: Simulator\r\nDate: {self._date[1]}\r\n"
            f"Content-Type: application/x-amz-json-1.0\r\nContent-Length: {len(body)}\r\n"
            f"Connection: keep-alive\r\nx-amzn-RequestId: {self._requests:052X}\r\n\r\n"
        ).encode()


class _Connection(asyncio.Protocol):
    """One client's connection; a request is answered before the next one is looked at."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._buffer = bytearray()
        self._busy = False
        self._close = False
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._server.connections.add(self)
        # A whole page fits, so that sending it never waits for the event loop.
        connected = transport.get_extra_info("socket")
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.connections.discard(self)
        if self._busy:
            self._server.in_flight -= 1
            self._busy = False

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._next()

    def _next(self) -> None:
        while not self._busy:
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            head = bytes(self._buffer[:end])
            length = _LENGTH.search(head)
            total = end + 4 + (int(length[1]) if length else 0)
            if len(self._buffer) < total:
                return
            body = bytes(self._buffer[end + 4 : total])
            del self._buffer[:total]
            self._request(head, body)

    def _request(self, head: bytes, body: bytes) -> None:
        self._close = _CLOSE.search(head) is not None
        target = _TARGET.search(head)
        if target is None:  # as DynamoDB answers a health check
            return self._send(200, b"healthy: simulator")
        self._busy = True
        self._server.in_flight += 1
        key = _ACCESS_KEY.search(head)
        with self._server.lock:
            reply = self._server.service.answer(
                target[1].decode("latin-1"), body, key[1].decode("latin-1") if key else None
            )
        if reply.trouble == "hang":
            return None
        if reply.trouble == "drip":
            return self._drip(self._server.head(200, reply.body) + reply.body)
        if reply.delay:
            asyncio.get_running_loop().call_later(reply.delay, self._reply, reply)
            return None
        return self._reply(reply)

    def _reply(self, reply: Reply) -> None:
        if not self._busy:
            return  # the client went away meanwhile
        self._busy = False
        part = reply.body[: reply.cut]
        if reply.trouble == "reset":
            self.reset()
        elif reply.trouble == "reset-midway":
            self._transport.write(self._server.head(200, reply.body) + part)
            self.reset()
        elif reply.trouble == "truncate":
            self._transport.write(self._server.head(200, reply.body) + part)
            self._end()
        elif reply.trouble == "invalid-json":
            self._send(200, part)
        else:
            self._send(reply.status, reply.body)
        self._server.in_flight -= 1
        self._next()

    def _drip(self, answer: bytes) -> None:
        """A byte now and then: whoever waits for one at a time waits for minutes."""
        if self._busy and answer:
            self._transport.write(answer[:1])
            loop = asyncio.get_running_loop()
            loop.call_later(_DRIP_SECONDS, self._drip, answer[1:])

    def _send(self, status: int, body: bytes) -> None:
        self._transport.write(self._server.head(status, body) + body)
        if self._close:
            self._end()

    def _end(self) -> None:
        # Not just close: a forked child may hold a copy, which would keep the connection up.
        self._transport.write_eof()
        self._transport.close()

    def reset(self) -> None:
        """Close so that the client sees ECONNRESET."""
        connected = self._transport.get_extra_info("socket")
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if sys.platform == "linux":
            # Connecting to "nowhere" resets at once, even if a forked child holds a copy.
            nowhere = struct.pack("H14x", socket.AF_UNSPEC)
            ctypes.CDLL(None).connect(connected.fileno(), nowhere, len(nowhere))
        self._transport.abort()
