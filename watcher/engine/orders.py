"""What the manager tells a worker, through a pipe: what to read, when to hurry, what has closed."""

from __future__ import annotations

import errno
import os
import select
from datetime import datetime
from multiprocessing.connection import Connection as Pipe

import msgspec

from watcher import forks
from watcher.record.origin import Origin
from watcher.service.connection import Connection
from watcher.service.model import Position

_READ_BYTES = 64 * 1024


class Work(msgspec.Struct, frozen=True):
    """What a worker has to read of one shard."""

    connection: Connection
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
    def origin(self) -> Origin:
        """What the shard is called among those of all streams."""
        return Origin(self.arn, self.shard_id)


class Read(msgspec.Struct, frozen=True, tag="read"):
    """Read one more shard; what is done for it is counted in this place of the board."""

    work: Work
    place: int | None


class Hurry(msgspec.Struct, frozen=True, tag="hurry"):
    """A shard of this stream has records: the others may soon have some."""

    arn: str


class Close(msgspec.Struct, frozen=True, tag="close"):
    """A shard that is being read gets no more records: it ends only where its iterator does."""

    arn: str
    shard_id: str


class Rest(msgspec.Struct, frozen=True, tag="rest"):
    """What was read of this shard waits to be delivered: it need not be read for a while."""

    arn: str
    shard_id: str


Order = Read | Hurry | Close | Rest

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Order] = msgspec.json.Decoder(Order)


class Orders:
    """The manager's end of the pipe; a worker reads what comes out of the other until it is shut.

    That is also how a worker learns that its manager is gone: nobody else may hold this end open.
    """

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        os.set_blocking(pipe.fileno(), False)
        forks.in_child(self.close)

    def give(self, order: Order) -> None:
        """Tell it. Raises OSError where the worker does not listen (any more)."""
        line = _encoder.encode(order) + b"\n"
        # So much is written whole, or not at all.
        if len(line) > select.PIPE_BUF:
            raise OSError(errno.EMSGSIZE, "its name or its position is too long")
        os.write(self._pipe.fileno(), line)

    def close(self) -> None:
        """Nothing more comes."""
        self._pipe.close()


class Ear:
    """A worker's end of the pipe."""

    def __init__(self, pipe: Pipe) -> None:
        self.is_over = False
        """Whether nothing more comes: its work is done, or the manager is gone."""
        self._pipe = pipe
        self._poll = select.poll()
        self._poll.register(pipe.fileno(), select.POLLIN)
        self._rest = b""

    def listen(self, seconds: float | None) -> list[Order]:
        """What it is told; waits for that, if not without an end, then so long."""
        if not self._poll.poll(None if seconds is None else seconds * 1000):
            return []
        data = os.read(self._pipe.fileno(), _READ_BYTES)
        self.is_over = not data
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [_decoder.decode(line) for line in lines]
