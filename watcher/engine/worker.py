"""A worker's process: reads its shards side by side, until the manager has no more work for it."""

from __future__ import annotations

import ctypes
import functools
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection as Pipe

from watcher import forks
from watcher.clock import CLOCK
from watcher.engine.orders import Close, Ear, Hurry, Read, Rest, Work
from watcher.engine.readers import Readers, Reading
from watcher.engine.shared_queue import Writer
from watcher.errors import StreamError
from watcher.reading.messages import Failed, Message
from watcher.reading.parts import Chosen
from watcher.record.origin import Origin
from watcher.record.selection import Selection
from watcher.service.client import StreamsClient
from watcher.service.connect import for_worker
from watcher.service.credentials import SharedCredentials
from watcher.service.names import place_of
from watcher.service.tally import Board, Tally

_libc = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1
# So long a read may keep the turns of other shards.
_PATIENCE_SECONDS = 0.25
# A wait without an end can't be broken off on every system.
_LONGEST_WAIT = 3600.0


def run(
    orders: Pipe,
    writer: Writer,
    board: Board,
    clients: dict[str, StreamsClient],
    credentials: SharedCredentials | None = None,
    wanted: Selection | None = None,
    environment: Mapping[str, str] | None = None,
) -> None:
    """The worker's whole life; what it does is counted on the `board`, for the manager to read.

    Most of what is not `wanted` it leaves out.

    `clients`, by the streams' place, were made before the fork and never used there (sockets can't
    be shared); those that are missing are made, over `credentials`.

    `environment` is that of `forks.take_environment`.
    """
    _end_with_parent()
    forks.take_environment(environment)
    # Ctrl-C goes to the whole group: the manager decides. SIGTERM ends us at once, at any point:
    # the manager knows what it has received.
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threads = Threads(writer)
    chosen = None if wanted is None else wanted.places
    client = functools.partial(_client, dict(clients), credentials)
    ear = Ear(orders)
    while not ear.is_over:
        for order in ear.listen(threads.patience):
            match order:
                case Read(work, place):
                    _begin(work, board.at(place), client, threads, chosen)
                case Hurry(arn):
                    threads.hurry(arn)
                case Close(arn, shard_id):
                    threads.close(Origin(arn, shard_id))
                case Rest(arn, shard_id):
                    threads.rest(Origin(arn, shard_id))
        threads.look_after()


def _client(
    clients: dict[str, StreamsClient], credentials: SharedCredentials | None, work: Work
) -> StreamsClient:
    place = place_of(work.arn)
    if place not in clients:
        clients[place] = for_worker(work.connection, work.arn, credentials)
    return clients[place]


def _begin(
    work: Work,
    tally: Tally,
    client: Callable[[Work], StreamsClient],
    threads: Threads,
    chosen: Chosen | None,
) -> None:
    try:
        threads.begin(Reading(work, client(work).counting(tally), tally, chosen=chosen))
    except StreamError as error:  # no client can be made
        threads.send(work.origin, [Failed(str(error), fatal=True)])


class Threads:
    """As many threads as there are reads at the same time: one, most often, while all is idle.

    To hand the turns from one to the next for each read would cost twice what a read does.
    """

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._sending = threading.Lock()
        self._readers = Readers(CLOCK)
        self._lock = threading.Lock()
        self._turn = threading.Condition(self._lock)
        self._has_waiter = False
        self._others = threading.Condition(self._lock)
        self._spare = 0

    def begin(self, reading: Reading) -> None:
        """Read this shard, from now on."""
        with self._lock:
            self._readers.begin(reading)
            self._turn.notify()
            self._look_after()

    @property
    def patience(self) -> float | None:
        """In how many seconds `look_after` is to be called again."""
        return _PATIENCE_SECONDS if len(self._readers) > 1 else None

    def look_after(self) -> None:
        """Where a read takes long, somebody else has to take the turns that have come meanwhile."""
        with self._lock:
            self._look_after()

    def _look_after(self) -> None:
        if not self._has_waiter and self._readers.wait() <= 0:
            self._call_another()

    def hurry(self, arn: str) -> None:
        """See `Readers.hurry`."""
        with self._lock:
            self._readers.hurry(arn)
            self._turn.notify()

    def close(self, origin: Origin) -> None:
        """See `Readers.close`."""
        with self._lock:
            self._readers.close(origin)
            self._turn.notify()

    def rest(self, origin: Origin) -> None:
        """See `Readers.rest`."""
        with self._lock:
            self._readers.rest(origin)

    def send(self, origin: Origin, messages: list[Message]) -> None:
        """Hand messages over; while the pipe is full, this and all others wait here."""
        with self._sending:
            for message in messages:
                self._writer.send(origin, message)

    def _call_another(self) -> None:
        """Somebody has to wait for the next turn."""
        self._has_waiter = True
        if self._spare:
            self._spare -= 1
            self._others.notify()
        else:
            threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        """A thread's whole life: called to wait for the next turn, then read, and so on."""
        try:
            with self._lock:
                reading = self._next_turn()
            while True:
                messages = reading.read()
                with self._lock:
                    self._readers.has_answer(reading)
                self.send(reading.origin, messages)
                with self._lock:
                    self._readers.done(reading)
                    self._turn.notify()
                    if self._has_waiter:
                        self._spare += 1
                        self._others.wait()  # until it is called
                    reading = self._next_turn()
        except BrokenPipeError:  # the manager is gone, and so is the reason to read
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)

    def _next_turn(self) -> Reading:
        self._has_waiter = True
        while (reading := self._readers.next()) is None:
            self._turn.wait(min(self._readers.wait(), _LONGEST_WAIT))
        self._has_waiter = False
        self._look_after()
        return reading


def _end_with_parent() -> None:
    """Die with the manager, even while stopped or waiting for an answer that never comes.

    Where there is no such call, the end of the orders says that the manager is gone.
    """
    if sys.platform == "linux":
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
