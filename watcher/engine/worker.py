"""The process of one shard: reader to queue, until the shard ends or the manager is gone."""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from datetime import datetime

import msgspec

from watcher.clock import CLOCK, Clock
from watcher.engine.shared_queue import Writer
from watcher.errors import StreamError
from watcher.reading.messages import Failed, Message, Page
from watcher.reading.shard_reader import ShardReader
from watcher.record.origin import Origin
from watcher.service.client import StreamsClient
from watcher.service.connect import for_worker
from watcher.service.connection import Connection
from watcher.service.credentials import SharedCredentials
from watcher.service.model import Position, Service
from watcher.service.tally import Tally

_libc = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


class Work(msgspec.Struct, frozen=True):
    """What a worker has to read."""

    connection: Connection
    arn: str
    shard_id: str
    position: Position
    until: datetime | None
    idle_pause: float
    end: datetime | None = None
    """Records made later are left out."""
    closed: bool = False
    """Whether the shard is known to get no more records."""

    @property
    def origin(self) -> Origin:
        """What the shard is called among those of all streams."""
        return Origin(self.arn, self.shard_id)


def run(
    work: Work,
    writer: Writer,
    tally: Tally,
    streams: StreamsClient | None,
    credentials: SharedCredentials | None = None,
) -> None:
    """The worker's whole life; what it does is counted in `tally`, for the manager to read.

    `streams` is a client made before the fork and never used there (sockets can't be shared), or
    None where the start method pickles its arguments: then one is made, over `credentials`.
    """
    manager = multiprocessing.parent_process()
    # Who died before we came here has left us to another; a fork server is a parent of its own.
    parent = manager.pid if manager and streams else os.getppid()
    _end_with_parent()
    # Ctrl-C goes to the whole group: the manager decides. SIGTERM ends us at once, at any point:
    # the manager knows what it has received.
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with contextlib.suppress(BrokenPipeError):  # the manager is gone, and so is the reason to read
        try:
            client = streams or for_worker(work.connection, work.arn, credentials)
            _read(work, writer, tally, client, parent)
        except BrokenPipeError:
            raise
        except StreamError as error:
            writer.send(Failed(str(error), fatal=True))
        except Exception:
            writer.send(Failed(traceback.format_exc(), fatal=False))


def _read(
    work: Work, writer: Writer, tally: Tally, streams: StreamsClient, parent: int | None
) -> None:
    streams.tally = tally
    for step in steps(reader_of(work, streams, CLOCK), tally, CLOCK):
        if isinstance(step, int | float):
            time.sleep(step)
        else:
            writer.send(step)
        if os.getppid() != parent:
            return


def reader_of(work: Work, streams: Service, clock: Clock) -> ShardReader:
    """The reader for a worker's task."""
    return ShardReader(
        streams,
        work.arn,
        work.shard_id,
        work.position,
        closed=work.closed,
        until=work.until,
        end=work.end,
        idle_pause=work.idle_pause,
        clock=clock,
    )


def steps(reader: ShardReader, tally: Tally, clock: Clock) -> Iterator[Message | float]:
    """What a worker does, one thing after the other: messages to send, and seconds to wait."""
    while not reader.finished:
        for message in reader.read():
            if isinstance(message, Page):
                tally.read(message.last - message.first)
            yield message
        if reader.caught_up:
            tally.reach_tip(clock.monotonic())
        yield reader.pause


def _end_with_parent() -> None:
    """Die with the manager, even while stopped or waiting for an answer that never comes.

    Where there is no such call, a worker looks for its manager between two reads.
    """
    if sys.platform == "linux":
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
