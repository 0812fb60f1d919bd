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
from datetime import datetime

import msgspec

from watcher.engine.shared_queue import Writer
from watcher.errors import CredentialsError, StreamError
from watcher.reading.messages import Failed, Page, Trouble
from watcher.reading.shard_reader import ShardReader
from watcher.service.client import StreamsClient
from watcher.service.connect import for_worker
from watcher.service.connection import Connection
from watcher.service.model import Position
from watcher.service.tally import Tally

_libc = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1
_PAUSE_REFUSED = 0.5
_PAUSE_REFUSED_MAX = 5.0


class Work(msgspec.Struct, frozen=True):
    """What a worker has to read."""

    connection: Connection
    arn: str
    shard_id: str
    position: Position
    until: datetime | None
    idle_pause: float


def run(work: Work, writer: Writer, tally: Tally, streams: StreamsClient | None) -> None:
    """The worker's whole life; what it does is counted in `tally`, for the manager to read.

    `streams` is a client made before the fork and never used there (sockets can't be shared), or
    None where the start method pickles its arguments.
    """
    manager = multiprocessing.parent_process()
    # Who died before we came here has left us to another; a fork server is a parent of its own.
    parent = manager.pid if manager and streams else os.getppid()
    _end_with_parent()
    # Ctrl-C goes to the whole group: the manager decides. SIGTERM ends us at once, at any point:
    # the manager knows what it has received.
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with contextlib.suppress(BrokenPipeError):  # the manager is gone, and so is the reason to read
        try:
            client = streams or for_worker(work.connection, work.arn)
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
    reader = ShardReader(
        streams,
        work.arn,
        work.shard_id,
        work.position,
        until=work.until,
        idle_pause=work.idle_pause,
    )
    refusals = 0
    while not reader.finished and os.getppid() == parent:
        try:
            messages = reader.read()
        except CredentialsError as error:
            # Somebody will log in again; a new client reads the files anew.
            refusals += 1
            writer.send(Trouble(str(error), refusals))
            time.sleep(min(_PAUSE_REFUSED * refusals, _PAUSE_REFUSED_MAX))
            with contextlib.suppress(CredentialsError):
                reader.streams = for_worker(work.connection, work.arn)
                reader.streams.tally = tally
            continue
        refusals = 0
        for message in messages:
            if isinstance(message, Page):
                tally.read(message.last - message.first)
            writer.send(message)
        if reader.caught_up:
            tally.reach_tip(time.monotonic())
        time.sleep(reader.pause)


def _end_with_parent() -> None:
    """Die with the manager, even while stopped or waiting for an answer that never comes.

    Where there is no such call, a worker looks for its manager between two reads.
    """
    if sys.platform == "linux":
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
