"""A worker, which reads its shards side by side until the manager ends it.

`run` is its process's main thread; `Worker.serve` takes the manager's commands, and its threads
read; `ReadScheduler` tells them which shard is next; `AssignedShard` is one shard.
"""

from __future__ import annotations

import math
import os
import random
import signal
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from multiprocessing.connection import Connection as Pipe

from watcher import process_start
from watcher.aws.arns import place_of
from watcher.aws.client import StreamsClient
from watcher.aws.config import AwsConfig
from watcher.aws.connect import for_worker
from watcher.aws.counters import Counters, SharedCounters
from watcher.aws.credentials import WorkerCredentials
from watcher.aws.model import Service, ShardKey
from watcher.clock import CLOCK, Clock, DueQueue
from watcher.errors import StreamError
from watcher.records.filters import RecordFilter
from watcher.runtime.protocol import (
    CommandReader,
    CredentialsRefused,
    FromWorker,
    MessageWriter,
    NewCredentials,
    Pause,
    ReadShard,
    ShardAssignment,
    ShardClosed,
)
from watcher.streams.messages import MakePage, Message, Page, ReaderCrashed, ReaderEnded, make_page
from watcher.streams.shard_reader import ShardReader

# The number of reads under way, as each answer may have a megabyte; with slow ones, the largest.
_READS_AT_ONCE = 4
_READS_AT_ONCE_MAX = 32
# The time after which a read counts as slow, so that it delays no other shard.
_SLOW_READ_SECONDS = 0.25
# The lateness of a turn from which another thread takes it; it is checked as often. One thread
# asks for 16 idle shards within it, where an answer takes 10 ms; several would compete for the
# interpreter at each step.
_LATE_SECONDS = 0.25
# The step to which idle shards' polls are aligned: a poll that wakes the process alone costs three
# times as much.
_ALIGN_SECONDS = 1.0
# The time for which a shard stays paused, unless the command is repeated.
_PAUSE_SECONDS = 0.5
# The longest single wait: some systems can't interrupt a wait without a limit.
_WAIT_SECONDS_MAX = 3600.0


class AssignedShard:
    """A shard that this worker reads: its reader, its client and its counters."""

    def __init__(
        self,
        assignment: ShardAssignment,
        service: Service,
        counters: Counters,
        clock: Clock = CLOCK,
        make_page: MakePage = make_page,
    ) -> None:
        self.shard_key = assignment.shard_key
        self.reader = ShardReader(
            assignment.arn,
            assignment.shard_id,
            assignment.position,
            closed=assignment.closed,
            bounded_at=assignment.bounded_at,
            end=assignment.end,
            make_page=make_page,
            poll_max=assignment.poll_max,
            latest=assignment.latest,
            created=assignment.created,
            clock=clock,
        )
        self.is_finished = False
        """True once it was read to its end, or can't be read any further."""
        self._service = service
        self._counters = counters
        self._clock = clock

    def read(self) -> list[Message]:
        """Makes one attempt; returns the messages for the manager."""
        counters = self._counters
        answers = counters.answers
        try:
            messages = self.reader.attempt(self._service)
        except StreamError as error:
            messages = [ReaderCrashed(str(error), fatal=True)]
        except Exception:
            messages = [ReaderCrashed(traceback.format_exc(), fatal=False)]
        counters.attempt(self._clock.monotonic(), answered=counters.answers > answers)
        # Before the messages are sent: after that, the manager may give the slot to another shard.
        for message in messages:
            if isinstance(message, Page):
                counters.read(message.read)
            self.is_finished |= isinstance(message, ReaderEnded | ReaderCrashed)
        if self.reader.is_idle and not self.is_finished:
            counters.reach_tip(self._clock.monotonic())
        return messages


class ReadScheduler:
    """Decides which of a worker's shards is read next; a slow or refused one delays no other.

    `next` returns a shard to read; the caller then calls `answered` and `done`.
    """

    def __init__(self, clock: Clock = CLOCK) -> None:
        self._clock = clock
        self._phase = random.uniform(0, _ALIGN_SECONDS)  # different in each worker
        self._waiting: DueQueue[AssignedShard] = DueQueue(clock)
        # The start time of each read; infinite once the answer has come, and waits to be sent.
        self._being_read: dict[AssignedShard, float] = {}
        self._paused_until: dict[ShardKey, float] = {}

    def __len__(self) -> int:
        return len(self._waiting) + len(self._being_read)

    def add(self, shard: AssignedShard) -> None:
        """Adds a shard, to be read now."""
        self._waiting.put(shard, 0.0)

    @property
    def due_in(self) -> float:
        """Seconds until `next` may return a shard; zero or less: now."""
        return max(self._waiting.due_in, self._room_in())

    @property
    def reads_in(self) -> float:
        """Seconds until a read may be under way; 0 while one is."""
        return 0.0 if self._being_read else max(0.0, self._waiting.due_in)

    def is_late(self) -> bool:
        """Returns True if a turn has been due for a while, and there is room for it."""
        return self._waiting.due_in <= -_LATE_SECONDS and self._room_in() <= 0

    def next(self) -> AssignedShard | None:
        """Returns the shard to read now, if one is due and there is room for it."""
        while self.due_in <= 0:
            shard = self._waiting.pop()
            now = self._clock.monotonic()
            paused = self._paused_until.pop(shard.shard_key, 0.0) - now
            if paused <= 0:
                self._being_read[shard] = now
                return shard
            self._waiting.put(shard, paused)
        return None

    def answered(self, shard: AssignedShard) -> None:
        """Notes that the shard's answer has come, and is being sent."""
        self._being_read[shard] = math.inf

    def done(self, shard: AssignedShard) -> None:
        """Notes that the messages are sent: the shard waits for its next read, or is finished."""
        del self._being_read[shard]
        if not shard.is_finished:
            delay = self._aligned(shard.reader.delay)
            self._waiting.put(shard, max(delay, shard.reader.least_delay))

    def obey(self, command: ShardClosed | Pause) -> None:
        """Does what the manager wants of shards that are being read."""
        match command:
            case ShardClosed(arn, shard_id):
                shards = [*self._waiting, *self._being_read]
                closed = {shard for shard in shards if shard.shard_key == ShardKey(arn, shard_id)}
                for shard in closed:
                    shard.reader.closed = True
                self._waiting.make_due(closed.__contains__)
            case Pause(arn, shard_id):
                until = self._clock.monotonic() + _PAUSE_SECONDS
                self._paused_until[ShardKey(arn, shard_id)] = until

    def _aligned(self, pause: float) -> float:
        """Returns a long delay shortened, so that it ends together with those of others."""
        if pause < _ALIGN_SECONDS:
            return pause
        return pause - (self._clock.monotonic() + self._phase + pause) % _ALIGN_SECONDS

    def _room_in(self) -> float:
        """Seconds until another read may start."""
        if len(self._being_read) < _READS_AT_ONCE:
            return 0.0
        if len(self._being_read) >= _READS_AT_ONCE_MAX:
            return math.inf
        slow_since = self._clock.monotonic() - _SLOW_READ_SECONDS
        quick = sorted(since for since in self._being_read.values() if since > slow_since)
        if len(quick) < _READS_AT_ONCE:
            return 0.0
        return quick[len(quick) - _READS_AT_ONCE] - slow_since


def _leave_signals_to_the_manager() -> None:
    """Ignores Ctrl-C, which goes to the whole group; SIGTERM ends the process at once.

    The manager knows which messages it has received.
    """
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # The program's own handler of Ctrl-Z would run here too; as it continues only after `fg`, this
    # process could stay stopped.
    if callable(signal.getsignal(signal.SIGTSTP)):
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)


def run(
    commands: Pipe,
    writer: MessageWriter,
    counters: SharedCounters,
    connection: AwsConfig,
    clients: Mapping[str, StreamsClient],
    *,
    credentials: WorkerCredentials,
    record_filter: RecordFilter | None = None,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Runs a worker until the manager ends it; the manager reads its counts from `counters`.

    It drops most of what the `record_filter` rejects from its pages.

    `clients`, by region and account, were made before the fork and not used there (processes can't
    share sockets); missing ones are made with `credentials`.

    `environment` is that of `process_start.take_environment`.
    """
    process_start.end_with_parent()
    process_start.take_environment(environment)
    _leave_signals_to_the_manager()
    worker = Worker(writer, end=os._exit)
    credentials.on_refusal = worker.send_refusal
    made = dict(clients)

    def client(arn: str) -> StreamsClient:
        if (place := place_of(arn)) not in made:
            made[place] = for_worker(connection, arn, credentials)
        return made[place]

    worker.serve(commands, counters, client, credentials, record_filter)


def pages_of(record_filter: RecordFilter | None) -> MakePage:
    """Returns what makes pages without most of what the filter rejects."""
    if record_filter is None:
        return make_page
    matching, names = record_filter.matching_indexes, record_filter.names_beside
    return partial(make_page, page_filter=matching, names=names)


class Worker:
    """Reads in as many threads as slow reads are under way, and one.

    One thread waits for the next turn and takes it; another waits in its place only where the next
    turn is late: to pass on each turn would cost twice as much as a read.

    A thread that can't go on calls `end` with an exit status.
    """

    def __init__(self, writer: MessageWriter, *, end: Callable[[int], object]) -> None:
        self._writer = writer
        self._end = end
        self._sending = threading.Lock()
        self._scheduler = ReadScheduler(CLOCK)
        self._lock = threading.Lock()
        self._turn = threading.Condition(self._lock)
        self._has_waiter = False
        self._thread_count = 0
        self._is_closed = False

    # The commands, in the main thread

    def serve(
        self,
        commands: Pipe,
        counters: SharedCounters,
        client: Callable[[str], StreamsClient],
        credentials: WorkerCredentials,
        record_filter: RecordFilter | None,
    ) -> None:
        """Obeys the manager's commands until their pipe ends; `client` makes a stream's client."""
        make = pages_of(record_filter)
        reader = CommandReader(commands)
        while not reader.is_closed:
            for command in reader.receive(self.check_in):
                match command:
                    case ReadShard(assignment, slot):
                        mine = counters.at(slot)
                        try:
                            service = client(assignment.arn).counting(mine)
                        except StreamError as error:  # no client can be made
                            crashed = ReaderCrashed(str(error), fatal=True)
                            self._send(assignment.shard_key, [crashed])
                        else:
                            self.add(AssignedShard(assignment, service, mine, CLOCK, make))
                    case NewCredentials(keys):
                        credentials.take(keys)
                    case _:
                        with self._lock:
                            self._scheduler.obey(command)
                            self._turn.notify()
            self.check()

    def add(self, shard: AssignedShard) -> None:
        """Adds a shard, to be read now."""
        with self._lock:
            self._scheduler.add(shard)
            self._turn.notify()
            self._ensure_waiter()

    @property
    def check_in(self) -> float | None:
        """Seconds until `check` has to be called again, without a command; None: not needed."""
        with self._lock:
            if len(self._scheduler) <= 1:
                return None
            return min(self._scheduler.reads_in, _WAIT_SECONDS_MAX) + _LATE_SECONDS

    def check(self) -> None:
        """Has another thread take the due turns while a read takes long."""
        with self._lock:
            self._ensure_waiter()

    def close(self) -> None:
        """Ends each thread after its read, and then the messages."""
        with self._lock:
            self._is_closed = True
            self._turn.notify_all()
            self._end_messages()

    # The reads, in threads

    def _ensure_waiter(self) -> None:
        """Starts a thread where none waits for a turn that is late, or for the first one."""
        is_late = not self._thread_count or self._scheduler.is_late()
        if is_late and not self._has_waiter:
            self._has_waiter = True
            threading.Thread(target=self._run, daemon=True).start()
            self._thread_count += 1

    def _run(self) -> None:
        try:
            self._take_turns()
        except BrokenPipeError:  # the manager is gone, and so is the reason to read
            self._end(0)
        except BaseException:
            try:
                traceback.print_exc()
            finally:  # stderr may have no reader
                self._end(1)
        finally:
            with self._lock:
                self._thread_count -= 1
                self._end_messages()

    def _take_turns(self) -> None:
        """Waits for the next turn, reads, sends, and so on, until another thread waits."""
        with self._lock:
            shard = self._next_turn()
        while shard is not None:
            messages = shard.read()
            with self._lock:
                self._scheduler.answered(shard)
            self._send(shard.shard_key, messages)
            with self._lock:
                self._scheduler.done(shard)
                self._turn.notify()
                shard = None if self._has_waiter else self._next_turn()

    def _next_turn(self) -> AssignedShard | None:
        """Returns the shard to read, once it is due; None after `close`."""
        self._has_waiter = True
        while not self._is_closed and (shard := self._scheduler.next()) is None:
            self._turn.wait(min(self._scheduler.due_in, _WAIT_SECONDS_MAX))
        if self._is_closed:
            return None
        self._has_waiter = False
        self._ensure_waiter()
        return shard

    def send_refusal(self, access_key: str) -> None:
        """Tells the manager that the service has refused the credentials of this access key."""
        self._send(ShardKey("", ""), [CredentialsRefused(access_key)])

    def _send(self, shard_key: ShardKey, messages: Sequence[FromWorker]) -> None:
        """Sends a shard's messages; while the pipe is full, this and all other threads wait."""
        with self._sending:
            for message in messages:
                self._writer.send(shard_key, message)

    def _end_messages(self) -> None:
        if self._is_closed and not self._thread_count:
            self._writer.close()
