"""The shared queue between the workers and the manager.

A `multiprocessing.Queue` has one write lock, and a process killed while it holds it hangs all
others. Here each writer has a pipe of its own, and one selector waits for all of them: no lock,
and a writer stopped in the middle of a message stalls nobody but itself. A pipe that is full
stops its writer: that is the back-pressure, and what bounds the memory.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import selectors
import struct
from datetime import datetime
from multiprocessing.connection import Connection, Pipe

import msgspec

from watcher import process_start
from watcher.aws.config import AwsConfig
from watcher.aws.credentials import Keys
from watcher.aws.model import Position, ShardKey
from watcher.streams.messages import Message, Page

_READ_BYTES = 64 * 1024


class ShardAssignment(msgspec.Struct, frozen=True):
    """What a worker has to read of one shard."""

    connection: AwsConfig
    arn: str
    shard_id: str
    position: Position
    until: datetime | None
    poll_max: float
    end: datetime | None = None
    """Records made later are left out."""
    closed: bool = False
    """Whether the shard is known to get no more records."""
    latest: datetime | None = None
    """What "latest" means where the shard can't be begun at once."""

    @property
    def origin(self) -> ShardKey:
        """What the shard is called among those of all streams."""
        return ShardKey(self.arn, self.shard_id)


class ReadShard(msgspec.Struct, frozen=True, tag="read"):
    """Read one more shard; what is done for it is counted in this place of the board."""

    work: ShardAssignment
    place: int | None


class PollNow(msgspec.Struct, frozen=True, tag="hurry"):
    """A shard of this stream has records: the others may soon have some."""

    arn: str


class ShardClosed(msgspec.Struct, frozen=True, tag="close"):
    """A shard that is being read gets no more records: it ends only where its iterator does."""

    arn: str
    shard_id: str


class Pause(msgspec.Struct, frozen=True, tag="rest"):
    """What was read of this shard waits to be delivered: it need not be read for a while."""

    arn: str
    shard_id: str


class NewCredentials(msgspec.Struct, frozen=True, tag="credentials"):
    """The program has renewed its credentials: these are to be used from now on."""

    keys: Keys


Command = ReadShard | PollNow | ShardClosed | Pause | NewCredentials


class CredentialsRefused(msgspec.Struct, frozen=True, tag="refused"):
    """What a worker answers: the service has refused the credentials of this access key."""

    access_key: str


FromWorker = Message | CredentialsRefused

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Command] = msgspec.json.Decoder(Command)


class CommandWriter:
    """The manager's end of the pipe; a worker reads what comes out of the other until it is shut.

    That is also how a worker learns that its manager is gone: nobody else may hold this end open.
    """

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._unsent = b""
        os.set_blocking(pipe.fileno(), False)
        process_start.in_child(self.close)

    def give(self, order: Command) -> None:
        """Tell it. Raises OSError where the worker does not listen (any more).

        The end of a command that is too long for the pipe (session tokens may have any length)
        follows with the next one; one of 4 KB and less goes whole, or not at all.
        """
        lines = self._unsent + _encoder.encode(order) + b"\n"
        self._unsent = lines[os.write(self._pipe.fileno(), lines) :]

    def close(self) -> None:
        """Nothing more comes."""
        self._pipe.close()


class CommandReader:
    """A worker's end of the pipe."""

    def __init__(self, pipe: Connection) -> None:
        self.is_over = False
        """Whether nothing more comes: its work is done, or the manager is gone."""
        self._pipe = pipe
        self._poll = select.poll()
        self._poll.register(pipe.fileno(), select.POLLIN)
        self._rest = b""

    def listen(self, seconds: float | None) -> list[Command]:
        """What it is told; waits for that, if not without an end, then so long."""
        if not self._poll.poll(None if seconds is None else seconds * 1000):
            return []
        data = os.read(self._pipe.fileno(), _READ_BYTES)
        self.is_over = not data
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [_decoder.decode(line) for line in lines]


_HEADER = struct.Struct("<II")
# Room for a whole page, so that its writer can fetch the next one meanwhile. Only for the first
# pipes: what all pipes of a user may hold is limited (64 MB), and past it new ones get 8 KB.
_PIPE_BYTES = 1024 * 1024
_LARGE_PIPES = 32
_SHARED_QUEUE_READ_BYTES = 1024 * 1024
# Half-read messages take at most about this; then no further one is begun while one can end.
_HELD_BYTES = 32 * 1024 * 1024

_shared_queue_encoder = msgspec.json.Encoder()
_shared_queue_decoder: msgspec.json.Decoder[tuple[ShardKey, FromWorker]] = msgspec.json.Decoder(
    tuple[ShardKey, FromWorker]
)


def frame(origin: ShardKey, message: FromWorker) -> list[bytes]:
    """A shard's message as it goes into a pipe; a page's body is not copied for it."""
    body: bytes = b""
    if isinstance(message, Page):
        body = message.body
        message = msgspec.structs.replace(message, body=b"")
    head = _shared_queue_encoder.encode((origin, message))
    return [_HEADER.pack(len(head), len(body)) + head, body]


class Writer:
    """A worker's end. It pickles, so it can be handed to a process by any start method."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def send(self, origin: ShardKey, message: FromWorker) -> None:
        """Hand a message of a shard over; waits while the queue is full. For one thread at a time.

        Raises BrokenPipeError once the manager is gone.
        """
        views = [memoryview(part) for part in frame(origin, message) if part]
        while views:
            sent = os.writev(self.fileno(), views)
            while views and sent >= len(views[0]):
                sent -= len(views.pop(0))
            if views:
                views[0] = views[0][sent:]

    def fileno(self) -> int:
        """The pipe that it writes to."""
        return self._connection.fileno()

    def close(self) -> None:
        """Close this end; the manager sees the end of the pipe."""
        self._connection.close()


class _Inlet:
    """The manager's end of one pipe, and what it holds of a message that is not whole yet."""

    def __init__(self, name: str, connection: Connection) -> None:
        self.name = name
        self.connection = connection
        self.fd = connection.fileno()
        self._head = bytearray()
        self._buffer: bytearray | None = None
        self._filled = 0
        self._head_bytes = 0

    @property
    def held(self) -> int:
        """What a message that is not whole yet takes of the memory."""
        return 0 if self._buffer is None else len(self._buffer)

    def read(self) -> tuple[ShardKey, FromWorker] | None:
        """Read on without waiting; a message once it is whole, and its shard.

        Raises EOFError at the end.
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
            count = os.readv(self.fd, [room[:_SHARED_QUEUE_READ_BYTES]])
            if not count:
                raise EOFError
            self._filled += count
            if self._filled == len(self._buffer):
                return self._whole()

    def _whole(self) -> tuple[ShardKey, FromWorker]:
        assert self._buffer is not None
        view = memoryview(self._buffer)
        origin, message = _shared_queue_decoder.decode(view[: self._head_bytes])
        if isinstance(message, Page):
            message = msgspec.structs.replace(message, body=view[self._head_bytes :])
        self._buffer = None
        self._filled = 0
        return origin, message


class Queue:
    """The manager's side: one inlet per writer, read in turn, one message at a time."""

    def __init__(self, selector: selectors.BaseSelector | None = None) -> None:
        self._selector = selector or selectors.DefaultSelector()
        self._inlets: dict[str, _Inlet] = {}
        self._ready: list[_Inlet] = []
        self._wake_reader, self._wake_writer = os.pipe()
        os.set_blocking(self._wake_writer, False)
        os.set_blocking(self._wake_reader, False)
        self._selector.register(self._wake_reader, selectors.EVENT_READ, None)
        self._held = 0
        self._alone = False
        self._is_copy = False
        self._is_open = True
        # A copy of our ends would keep writers going whose manager is gone.
        process_start.in_child(self._give_up)

    def writer(self, name: str) -> Writer:
        """A new writer called `name`: under that name its end comes out of `receive`."""
        reading, writing = Pipe(duplex=False)
        if len(self._inlets) < _LARGE_PIPES and hasattr(fcntl, "F_SETPIPE_SZ"):
            with contextlib.suppress(OSError):  # only slower
                fcntl.fcntl(writing.fileno(), fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        os.set_blocking(reading.fileno(), False)
        inlet = _Inlet(name, reading)
        self._inlets[name] = inlet
        self._selector.register(inlet.fd, selectors.EVENT_READ, inlet)
        return Writer(writing)

    def receive(self, timeout: float) -> tuple[ShardKey, FromWorker] | tuple[str, None] | None:
        """The next message and its shard; or a writer's name and None: it is gone.

        None where there is no whole one yet: after `timeout` seconds, after `wake()`, or once a
        part of one was read. The writers take turns.
        """
        if self._is_copy:
            os._exit(0)  # a child that an observer has forked, and that came back
        if not self._ready:
            self._ready = self._wait(timeout)
        while self._ready:
            inlet = self._ready.pop(0)
            held = inlet.held
            if self._held > _HELD_BYTES and not held and not self._alone:
                continue
            try:
                message = inlet.read()
            except BlockingIOError:
                self._held += inlet.held - held
                continue
            except EOFError:
                self._held -= held
                self._drop(inlet)
                return inlet.name, None
            self._held -= held
            if message is not None:
                return message
        return None

    def _wait(self, timeout: float) -> list[_Inlet]:
        ready: list[_Inlet] = []
        for key, _ in self._selector.select(timeout):
            if key.data is None:
                os.read(self._wake_reader, 4096)
            else:
                ready.append(key.data)
        if self._held > _HELD_BYTES:
            begun = [inlet for inlet in ready if inlet.held]
            ready = begun or ready[:1]
        self._alone = len(ready) == 1
        return ready

    def holds(self, name: str) -> bool:
        """Whether something of this writer, its end too, was not received: it may wait for that."""
        inlet = self._inlets.get(name)
        return inlet is not None and inlet.connection.poll()

    def wake(self) -> None:
        """Make `receive` return now; may be called from a signal handler, also after the end."""
        if self._is_open:
            with contextlib.suppress(BlockingIOError):  # a full pipe wakes as well
                os.write(self._wake_writer, b"\0")

    def _give_up(self) -> None:
        self._is_copy = True
        self.close()

    def drop(self, name: str) -> None:
        """Forget a writer that never came to be."""
        if name in self._inlets:
            self._drop(self._inlets[name])

    def _drop(self, inlet: _Inlet) -> None:
        self._selector.unregister(inlet.fd)
        inlet.connection.close()
        del self._inlets[inlet.name]

    def close(self) -> None:
        """Close all; writers that still write get a BrokenPipeError."""
        if not self._is_open:
            return
        self._is_open = False
        for inlet in self._inlets.values():
            inlet.connection.close()
        self._inlets.clear()
        self._selector.close()

    def __del__(self) -> None:
        # Not before: another thread may be about to wake us, and the number another file's by then.
        os.close(self._wake_reader)
        os.close(self._wake_writer)
