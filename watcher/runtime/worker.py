"""A worker's process: reads its shards side by side, until the manager has no more work for it."""

from __future__ import annotations

import ctypes
import functools
import heapq
import itertools
import math
import os
import random
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection as Pipe
from typing import Generic, TypeVar

from watcher import process_start
from watcher.aws.arns import place_of
from watcher.aws.client import StreamsClient
from watcher.aws.connect import for_worker
from watcher.aws.counters import Counters, SharedCounters
from watcher.aws.credentials import WorkerCredentials
from watcher.aws.model import Service, ShardKey
from watcher.clock import CLOCK, Clock
from watcher.errors import StreamError
from watcher.pull import executor
from watcher.records.filters import RecordFilter
from watcher.runtime.protocol import (
    CommandReader,
    CredentialsRefused,
    FromWorker,
    NewCredentials,
    Pause,
    PollNow,
    ReadShard,
    ShardAssignment,
    ShardClosed,
    Writer,
)
from watcher.streams.messages import Chosen, Failed, Finished, Message, Page
from watcher.streams.shard_reader import ShardReader

_Thing = TypeVar("_Thing")


class DueQueue(Generic[_Thing]):
    """Things that rest; the one whose turn came first is the first to be given out."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._resting: list[tuple[float, int, _Thing]] = []
        self._order = itertools.count()

    def __len__(self) -> int:
        return len(self._resting)

    def rest(self, thing: _Thing, seconds: float) -> None:
        """Let it rest so long."""
        due = self._clock.monotonic() + seconds
        heapq.heappush(self._resting, (due, next(self._order), thing))

    def wait(self) -> float:
        """Seconds until the next turn; none or less where it has come."""
        return self._resting[0][0] - self._clock.monotonic() if self._resting else math.inf

    def next(self) -> _Thing | None:
        """The thing whose turn has come; it no longer rests."""
        return heapq.heappop(self._resting)[2] if self.wait() <= 0 else None

    def hurry(self, which: Callable[[_Thing], bool]) -> None:
        """The turn of these has come now."""
        now = self._clock.monotonic()
        self._resting = [
            (min(due, now) if which(thing) else due, order, thing)
            for due, order, thing in self._resting
        ]
        heapq.heapify(self._resting)

    def clear(self) -> None:
        """Forget all."""
        self._resting.clear()


# So many answers are waited for at once: each may bring a megabyte.
_AT_ONCE = 4
# One that takes so long does not count any more, or it would hold the other shards.
_SLOW_SECONDS = 0.25
_AT_ONCE_MAX = 32
# Turns of idle shards come together, so often a second: a read among others costs a third of one
# for which the process has to wake.
_TOGETHER_SECONDS = 0.5
# A shard whose records wait to be delivered is left alone so long, unless that is said again.
_REST_SECONDS = 0.5


class AssignedShard:
    """A shard that is being read."""

    def __init__(
        self,
        work: ShardAssignment,
        service: Service,
        tally: Counters,
        clock: Clock = CLOCK,
        chosen: Chosen | None = None,
    ) -> None:
        self.origin = work.origin
        self.reader = ShardReader(
            work.arn,
            work.shard_id,
            work.position,
            closed=work.closed,
            until=work.until,
            end=work.end,
            chosen=chosen,
            poll_max=work.poll_max,
            latest=work.latest,
            clock=clock,
        )
        self.is_over = False
        """Whether it was read to its end, or can't be read any further."""
        self._service = service
        self._tally = tally
        self._clock = clock

    def read(self) -> list[Message]:
        """Makes one attempt; returns what to report to the manager."""
        answers = self._tally.answers
        try:
            messages = executor.read(self.reader, self._service)
        except StreamError as error:
            messages = [Failed(str(error), fatal=True)]
        except Exception:
            messages = [Failed(traceback.format_exc(), fatal=False)]
        self._tally.attempt(self._clock.monotonic(), answered=self._tally.answers > answers)
        # Before they are sent: a shard's place on the board may then soon be another's.
        for message in messages:
            if isinstance(message, Page):
                self._tally.read(message.read)
            self.is_over |= isinstance(message, Finished | Failed)
        if self.reader.caught_up and not self.is_over:
            self._tally.reach_tip(self._clock.monotonic())
        return messages


class ReadScheduler:
    """A worker's shards; one that is slow, or refused, does not hold the others."""

    def __init__(self, clock: Clock = CLOCK) -> None:
        self._clock = clock
        self._phase = random.uniform(0, _TOGETHER_SECONDS)  # not the same in all workers
        self._turns: DueQueue[AssignedShard] = DueQueue(clock)
        # Since when an answer is waited for; no end to it where one has come, and waits to be sent.
        self._at_work: dict[AssignedShard, float] = {}
        self._to_rest: dict[ShardKey, float] = {}
        self._to_hurry: set[AssignedShard] = set()  # of those, since they are being read just now

    def __len__(self) -> int:
        return len(self._turns) + len(self._at_work)

    def begin(self, reading: AssignedShard) -> None:
        """Read this one as well."""
        self._turns.rest(reading, 0.0)

    def wait(self) -> float:
        """Seconds until `next` may have something; none or less: now."""
        return max(self._turns.wait(), self._room_in())

    def next(self) -> AssignedShard | None:
        """The one to be read now, if there is one and room for it; `done` is to follow."""
        if self.wait() > 0:
            return None
        reading = self._turns.next()
        assert reading is not None
        if (seconds := self._to_rest.pop(reading.origin, 0.0) - self._clock.monotonic()) > 0:
            self._turns.rest(reading, seconds)
            return self.next()
        self._at_work[reading] = self._clock.monotonic()
        return reading

    def has_answer(self, reading: AssignedShard) -> None:
        """What it has read is now to be sent."""
        self._at_work[reading] = math.inf

    def done(self, reading: AssignedShard) -> None:
        """All is sent: it rests, as long as it wants to, or is over."""
        del self._at_work[reading]
        if reading in self._to_hurry:
            self._to_hurry.remove(reading)
            reading.reader.hurry()
        if not reading.is_over:
            pause = self._shortened(reading.reader.pause)
            self._turns.rest(reading, max(pause, reading.reader.least_pause))

    def hurry(self, arn: str) -> None:
        """The shards of this stream that are seldom read, as they were idle, are read now."""
        self._turns.hurry(lambda reading: reading.origin.stream == arn and reading.reader.hurry())
        self._to_hurry.update(reading for reading in self._at_work if reading.origin.stream == arn)

    def close(self, origin: ShardKey) -> None:
        """This shard gets no more records; its turn has come, however long it was idle."""

        def closes(reading: AssignedShard) -> bool:
            if reading.origin == origin:
                reading.reader.closed = True
            return reading.origin == origin

        self._turns.hurry(closes)
        for reading in self._at_work:
            closes(reading)

    def rest(self, origin: ShardKey) -> None:
        """Do not read this shard for a moment."""
        self._to_rest[origin] = self._clock.monotonic() + _REST_SECONDS

    def _shortened(self, pause: float) -> float:
        """A long pause ends with those of others."""
        if pause < 2 * _TOGETHER_SECONDS:
            return pause
        return pause - (self._clock.monotonic() + self._phase + pause) % _TOGETHER_SECONDS

    def _room_in(self) -> float:
        """Seconds until one more may be read."""
        if len(self._at_work) >= _AT_ONCE_MAX:
            return math.inf
        slow_since = self._clock.monotonic() - _SLOW_SECONDS
        quick = sorted(since for since in self._at_work.values() if since > slow_since)
        return 0.0 if len(quick) < _AT_ONCE else quick[len(quick) - _AT_ONCE] - slow_since


_libc = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1
# So long a read may keep the turns of other shards.
_PATIENCE_SECONDS = 0.25
# A wait without an end can't be broken off on every system.
_LONGEST_WAIT = 3600.0


def run(
    orders: Pipe,
    writer: Writer,
    board: SharedCounters,
    clients: dict[str, StreamsClient],
    credentials: WorkerCredentials | None = None,
    wanted: RecordFilter | None = None,
    environment: Mapping[str, str] | None = None,
) -> None:
    """The worker's whole life; what it does is counted on the `board`, for the manager to read.

    Most of what is not `wanted` it leaves out.

    `clients`, by the streams' place, were made before the fork and never used there (sockets can't
    be shared); those that are missing are made, over `credentials`.

    `environment` is that of `forks.take_environment`.
    """
    _end_with_parent()
    process_start.take_environment(environment)
    # Ctrl-C goes to the whole group: the manager decides. SIGTERM ends us at once, at any point:
    # the manager knows what it has received.
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threads = WorkerThreads(writer)
    chosen = None if wanted is None else wanted.matching_indexes
    if credentials is not None:
        credentials.on_refusal = threads.send_refusal
    client = functools.partial(_client, dict(clients), credentials)
    ear = CommandReader(orders)
    while not ear.is_over:
        for order in ear.listen(threads.patience):
            match order:
                case ReadShard(work, place):
                    _begin(work, board.at(place), client, threads, chosen)
                case PollNow(arn):
                    threads.hurry(arn)
                case ShardClosed(arn, shard_id):
                    threads.close(ShardKey(arn, shard_id))
                case Pause(arn, shard_id):
                    threads.rest(ShardKey(arn, shard_id))
                case NewCredentials(keys) if credentials is not None:
                    credentials.take(keys)
        threads.look_after()


def _client(
    clients: dict[str, StreamsClient], credentials: WorkerCredentials | None, work: ShardAssignment
) -> StreamsClient:
    place = place_of(work.arn)
    if place not in clients:
        clients[place] = for_worker(work.connection, work.arn, credentials)
    return clients[place]


def _begin(
    work: ShardAssignment,
    tally: Counters,
    client: Callable[[ShardAssignment], StreamsClient],
    threads: WorkerThreads,
    chosen: Chosen | None,
) -> None:
    try:
        threads.begin(AssignedShard(work, client(work).counting(tally), tally, chosen=chosen))
    except StreamError as error:  # no client can be made
        threads.send(work.origin, [Failed(str(error), fatal=True)])


class WorkerThreads:
    """As many threads as there are reads at the same time: one, most often, while all is idle.

    To hand the turns from one to the next for each read would cost twice what a read does.
    """

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._sending = threading.Lock()
        self._readers = ReadScheduler(CLOCK)
        self._lock = threading.Lock()
        self._turn = threading.Condition(self._lock)
        self._has_waiter = False
        self._others = threading.Condition(self._lock)
        self._spare = 0

    def begin(self, reading: AssignedShard) -> None:
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
        """See `ReadScheduler.hurry`."""
        with self._lock:
            self._readers.hurry(arn)
            self._turn.notify()

    def close(self, origin: ShardKey) -> None:
        """See `ReadScheduler.close`."""
        with self._lock:
            self._readers.close(origin)
            self._turn.notify()

    def rest(self, origin: ShardKey) -> None:
        """See `ReadScheduler.rest`."""
        with self._lock:
            self._readers.rest(origin)

    def send_refusal(self, access_key: str) -> None:
        """Tell the manager that the service has refused the credentials of this access key."""
        self.send(ShardKey("", ""), [CredentialsRefused(access_key)])

    def send(self, origin: ShardKey, messages: Sequence[FromWorker]) -> None:
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

    def _next_turn(self) -> AssignedShard:
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
