"""The process of one shard: reader to queue, until the shard ends or the manager is gone."""

from __future__ import annotations

import os
import signal
import time
import traceback
from collections.abc import Sequence
from datetime import datetime

import msgspec

from watcher.errors import StreamError
from watcher.messages import Failed
from watcher.position import Position
from watcher.queue import Writer
from watcher.reader import ShardReader
from watcher.streams import Connection, Streams


class Work(msgspec.Struct, frozen=True):
    """What a worker has to read."""

    connection: Connection
    arn: str
    shard_id: str
    position: Position
    until: datetime | None
    idle_pause: float


def run(work: Work, writer: Writer, streams: Streams | None, inherited: Sequence[int]) -> None:
    """The worker's whole life.

    `streams` is a client made before the fork and never used there (sockets can't be shared), or
    None where the start method pickles its arguments. `inherited` are the queue's descriptors
    that came over with a fork.
    """
    parent = os.getppid()
    # Ctrl-C goes to the whole group: the manager decides. SIGTERM ends us at once, at any point:
    # the manager knows what it has received.
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for descriptor in inherited:
        os.close(descriptor)
    try:
        _read(work, writer, streams or Streams(work.connection), parent)
    except BrokenPipeError:
        pass  # the manager is gone, and so is the reason to read
    except StreamError as error:
        writer.send(Failed(str(error), fatal=True))
    except Exception:
        writer.send(Failed(traceback.format_exc(), fatal=False))


def _read(work: Work, writer: Writer, streams: Streams, parent: int) -> None:
    reader = ShardReader(
        streams,
        work.arn,
        work.shard_id,
        work.position,
        until=work.until,
        idle_pause=work.idle_pause,
    )
    while not reader.finished and os.getppid() == parent:
        for message in reader.read():
            writer.send(message)
        time.sleep(reader.pause)
