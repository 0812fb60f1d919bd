"""The protocol between the manager and its workers' processes, in both directions.

```
 manager                                                      worker (one pipe each way)
 CommandWriter ══ ReadShard, ShardClosed, Pause, … ══════▶ CommandReader
               a command is a line of JSON
 MessageQueue  ◀═══════════ (shard, Page | ReaderEnded | …) ══ MessageWriter
               a message is a header, JSON, and a page's body as the service sent it
```

A `multiprocessing.Queue` has one write lock, and a process killed while it holds the lock hangs
all others. Here each worker has its own pipe, and one selector waits for all of them: there is no
lock, and a worker stopped in the middle of a message stalls only itself. A full pipe blocks its
worker: that is the back-pressure that bounds the memory. The end of the command pipe tells a worker
that its work is done, or its manager gone; the end of the message pipe tells the manager that the
worker is gone.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import selectors
import struct
from collections.abc import Set
from datetime import datetime
from multiprocessing.connection import Connection, Pipe

import msgspec

from watcher import process_start
from watcher.aws.credentials import Keys
from watcher.aws.model import Position, ShardKey
from watcher.streams.messages import Message, Page

# Commands, down to a worker

_COMMAND_READ_BYTES = 64 * 1024


class ShardAssignment(msgspec.Struct, frozen=True):
    """A shard for a worker to read: its start position, its end, and how to poll it."""

    arn: str
    shard_id: str
    position: Position
    bounded_at: datetime | None
    poll_max: float
    end: datetime | None = None
    """The creation time up to which records are read; None: no limit."""
    closed: bool = False
    """True for a shard that gets no more records."""
    latest: datetime | None = None
    """The moment that "latest" means if the first GetShardIterator has to be retried."""
    created: float | None = None
    """The creation time of the record that the position is behind, where known."""

    @property
    def shard_key(self) -> ShardKey:
        """The shard's key among the shards of all streams."""
        return ShardKey(self.arn, self.shard_id)


class ReadShard(msgspec.Struct, frozen=True, tag=True):
    """Command: read one more shard, and count its calls in this slot of the `SharedCounters`."""

    assignment: ShardAssignment
    slot: int | None


class ShardClosed(msgspec.Struct, frozen=True, tag=True):
    """Command: read this shard to its end without delays, as it gets no more records."""

    arn: str
    shard_id: str


class Pause(msgspec.Struct, frozen=True, tag=True):
    """Command: stop reading this shard for a moment, as its records wait for delivery."""

    arn: str
    shard_id: str


class NewCredentials(msgspec.Struct, frozen=True, tag=True):
    """Command: use these credentials from now on; the program has renewed them."""

    keys: Keys


Command = ReadShard | ShardClosed | Pause | NewCredentials

_command_encoder = msgspec.json.Encoder()
_command_decoder: msgspec.json.Decoder[Command] = msgspec.json.Decoder(Command)


class CommandWriter:
    """The manager's end of the pipe for one worker's commands.

    Its closing tells the worker that the manager is gone: no other process may hold this end open.
    """

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._has_room = select.poll()
        self._has_room.register(pipe.fileno(), select.POLLOUT)
        process_start.in_forked_child(self.close)

    def send(self, command: Command) -> None:
        """Sends a command. Raises OSError where the worker can't take it (now).

        Of a command it waits only for what follows the first 4 KB: session tokens may have any
        length.
        """
        if not self._has_room.poll(0):
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        line = _command_encoder.encode(command) + b"\n"
        while line:
            line = line[os.write(self._pipe.fileno(), line) :]

    def close(self) -> None:
        """Ends the commands, so that the worker ends."""
        self._pipe.close()


class CommandReader:
    """A worker's end of the pipe for its commands."""

    def __init__(self, pipe: Connection) -> None:
        self.is_closed = False
        """True once the pipe has ended: the work is done, or the manager is gone."""
        self._pipe = pipe
        self._poll = select.poll()
        self._poll.register(pipe.fileno(), select.POLLIN)
        self._partial_line = b""

    def receive(self, timeout: float | None) -> list[Command]:
        """Returns the waiting commands; waits up to `timeout` seconds for one (None: no limit)."""
        if not self._poll.poll(None if timeout is None else timeout * 1000):
            return []
        data = os.read(self._pipe.fileno(), _COMMAND_READ_BYTES)
        self.is_closed = not data
        *lines, self._partial_line = (self._partial_line + data).split(b"\n")
        return [_command_decoder.decode(line) for line in lines]


# Messages, up to the manager


class CredentialsRefused(msgspec.Struct, frozen=True, tag=True):
    """Message: the service has refused the credentials of this access key."""

    access_key: str


FromWorker = Message | CredentialsRefused


# A pipe's size: a whole page, so that a worker can fetch the next one meanwhile; and the number of
# pipes of that size: a user's pipes share 64 MB, and then get 8 KB each.
_PIPE_BYTES = 1024 * 1024
_LARGE_PIPES = 32
_HEADER = struct.Struct("<II")

_message_encoder = msgspec.json.Encoder()
_message_decoder: msgspec.json.Decoder[tuple[ShardKey, FromWorker]] = msgspec.json.Decoder(
    tuple[ShardKey, FromWorker]
)


def frame(shard_key: ShardKey, message: FromWorker) -> list[bytes]:
    """Returns a shard's message as it goes into a pipe; a page's body is not copied."""
    body: bytes = b""
    if isinstance(message, Page):
        body = message.body
        message = msgspec.structs.replace(message, body=b"")
    head = _message_encoder.encode((shard_key, message))
    return [_HEADER.pack(len(head), len(body)) + head, body]


class MessageWriter:
    """A worker's end of its message pipe; any start method can pickle it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def send(self, shard_key: ShardKey, message: FromWorker) -> None:
        """Sends a shard's message; waits while the pipe is full. For one thread at a time.

        Raises BrokenPipeError once the manager is gone.
        """
        views = [memoryview(part) for part in frame(shard_key, message) if part]
        while views:
            sent = os.writev(self.fileno(), views)
            while views and sent >= len(views[0]):
                sent -= len(views.pop(0))
            if views:
                views[0] = views[0][sent:]

    def fileno(self) -> int:
        """Returns the descriptor of the pipe."""
        return self._connection.fileno()

    def copy(self) -> MessageWriter:
        """Returns another one for the same pipe, for a worker of this process."""
        made = MessageWriter(Connection(os.dup(self.fileno()), readable=False))
        # The manager would never see the end of a pipe that a child of its program holds.
        process_start.in_forked_child(made.close)
        return made

    def close(self) -> None:
        """Closes this end; the manager sees the end of the pipe once all are closed."""
        self._connection.close()


class _Inlet:
    """The manager's end of one pipe, and its half-read message."""

    def __init__(self, name: str, connection: Connection) -> None:
        self.name = name
        self.connection = connection
        self.fd = connection.fileno()
        self._head = bytearray()
        self._buffer: bytearray | None = None
        self._filled = 0
        self._head_bytes = 0

    def read(self) -> tuple[ShardKey, FromWorker]:
        """Reads without waiting; returns a shard and its message once that is complete.

        Raises EOFError at the end, BlockingIOError while there is no more to read.
        """
        while True:
            if self._buffer is None:
                chunk = os.read(self.fd, _HEADER.size - len(self._head))
                if not chunk:
                    raise EOFError
                self._head += chunk
                if len(self._head) < _HEADER.size:
                    continue
                self._head_bytes, body_bytes = _HEADER.unpack(self._head)
                self._head.clear()
                self._buffer = bytearray(self._head_bytes + body_bytes)
                self._filled = 0
            room = memoryview(self._buffer)[self._filled :]
            count = os.readv(self.fd, [room])
            if not count:
                raise EOFError
            self._filled += count
            if self._filled == len(self._buffer):
                return self._decoded()

    def _decoded(self) -> tuple[ShardKey, FromWorker]:
        assert self._buffer is not None
        view = memoryview(self._buffer)
        shard_key, message = _message_decoder.decode(view[: self._head_bytes])
        if isinstance(message, Page):
            message = msgspec.structs.replace(message, body=bytes(view[self._head_bytes :]))
        self._buffer = None
        self._filled = 0
        return shard_key, message


class MessageQueue:
    """The manager's side: one inlet per worker, read in turn, one message at a time."""

    def __init__(self, selector: selectors.BaseSelector | None = None) -> None:
        self._selector = selector or selectors.DefaultSelector()
        self._inlets: dict[str, _Inlet] = {}
        self._ready: list[_Inlet] = []
        self._held: Set[str] = frozenset()
        """The workers whose messages wait in their pipes."""
        self._wake_reader, self._wake_writer = os.pipe()
        os.set_blocking(self._wake_writer, False)
        os.set_blocking(self._wake_reader, False)
        self._selector.register(self._wake_reader, selectors.EVENT_READ, None)
        self._is_forked_copy = False
        self._is_open = True
        # A copy of our ends would keep the workers of a dead manager running.
        process_start.in_forked_child(self._close_in_child)

    def writer(self, name: str) -> MessageWriter:
        """Opens a pipe for a worker called `name`; `receive` reports its end under that name."""
        reading, writing = Pipe(duplex=False)
        if len(self._inlets) < _LARGE_PIPES and hasattr(fcntl, "F_SETPIPE_SZ"):
            with contextlib.suppress(OSError):  # a small pipe is only slower
                fcntl.fcntl(writing.fileno(), fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        os.set_blocking(reading.fileno(), False)
        inlet = _Inlet(name, reading)
        self._inlets[name] = inlet
        self._selector.register(inlet.fd, selectors.EVENT_READ, inlet)
        return MessageWriter(writing)

    def receive(
        self, timeout: float, held: Set[str] = frozenset()
    ) -> tuple[ShardKey, FromWorker] | tuple[str, None] | None:
        """Returns the next message and its shard; or a worker's name and None: it is gone.

        None without a complete message: after `timeout` seconds, after `wake()`, or once a part of
        one was read. The workers take turns, but for those that are `held`.
        """
        if self._is_forked_copy:
            os._exit(0)  # a child that a handler forked, and that returned here
        if held != self._held:
            self._hold(held)
        if not self._ready:
            self._ready = self._wait(timeout)
        while self._ready:
            inlet = self._ready.pop(0)
            try:
                return inlet.read()
            except BlockingIOError:
                continue
            except EOFError:
                self._remove(inlet)
                return inlet.name, None
        return None

    def _hold(self, held: Set[str]) -> None:
        """Waits for these workers' messages no longer, and for those again that it held before."""
        for name in held - self._held:
            self._selector.unregister(self._inlets[name].fd)
        for name in self._held - held:
            inlet = self._inlets[name]
            self._selector.register(inlet.fd, selectors.EVENT_READ, inlet)
        self._ready = [inlet for inlet in self._ready if inlet.name not in held]
        self._held = held

    def _wait(self, timeout: float) -> list[_Inlet]:
        ready: list[_Inlet] = []
        for key, _ in self._selector.select(timeout):
            if key.data is None:
                os.read(self._wake_reader, 4096)
            else:
                ready.append(key.data)
        return ready

    def has_unread(self, name: str) -> bool:
        """True if this worker has sent a message, or its end, that was not received yet."""
        inlet = self._inlets.get(name)
        return inlet is not None and inlet.connection.poll()

    def wake(self) -> None:
        """Makes `receive` return now; safe in a signal handler, and after `close`."""
        if self._is_open:
            with contextlib.suppress(BlockingIOError):  # a full pipe wakes the loop too
                os.write(self._wake_writer, b"\0")

    def _close_in_child(self) -> None:
        self._is_forked_copy = True
        self.close()

    def remove(self, name: str) -> None:
        """Removes the pipe of a worker that could not be started."""
        if name in self._inlets:
            self._remove(self._inlets[name])

    def _remove(self, inlet: _Inlet) -> None:
        self._selector.unregister(inlet.fd)
        inlet.connection.close()
        del self._inlets[inlet.name]

    def close(self) -> None:
        """Closes all pipes; workers that still write get a BrokenPipeError."""
        if not self._is_open:
            return
        self._is_open = False
        for inlet in self._inlets.values():
            inlet.connection.close()
        self._inlets.clear()
        self._selector.close()

    def __del__(self) -> None:
        # Not in `close`: a thread about to call `wake` would write to a reused descriptor.
        os.close(self._wake_reader)
        os.close(self._wake_writer)
