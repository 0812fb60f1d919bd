"""A worker, which reads its shards side by side until the manager ends it.

`run` is its process's main thread; `serve` takes the manager's commands; `WorkerThreads` are the
threads that read; `ReadScheduler` tells them which shard is next; `AssignedShard` is one shard.
"""

from __future__ import annotations

import functools
import math
import os
import random
import signal
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
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
    PollNow,
    ReadShard,
    ShardAssignment,
    ShardClosed,
)
from watcher.runtime.timing import WORKER_TIMING, WorkerTiming
from watcher.streams.messages import Message, Page, PageFilter, ReaderCrashed, ReaderEnded
from watcher.streams.shard_reader import ShardReader


class AssignedShard:
    """A shard that this worker reads: its reader, its client and its counters."""

    def __init__(
        self,
        assignment: ShardAssignment,
        service: Service,
        counters: Counters,
        clock: Clock = CLOCK,
        page_filter: PageFilter | None = None,
    ) -> None:
        self.shard_key = assignment.shard_key
        self.reader = ShardReader(
            assignment.arn,
            assignment.shard_id,
            assignment.position,
            closed=assignment.closed,
            bounded_at=assignment.bounded_at,
            end=assignment.end,
            page_filter=page_filter,
            poll_max=assignment.poll_max,
            latest=assignment.latest,
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

    def __init__(self, clock: Clock = CLOCK, *, timing: WorkerTiming = WORKER_TIMING) -> None:
        self._clock = clock
        self._timing = timing
        self._phase = random.uniform(0, timing.align_seconds)  # different in each worker
        self._waiting: DueQueue[AssignedShard] = DueQueue(clock)
        # The start time of each read; infinite once the answer has come, and waits to be sent.
        self._being_read: dict[AssignedShard, float] = {}
        self._paused_until: dict[ShardKey, float] = {}
        self._to_poll: set[AssignedShard] = set()  # of `_being_read`

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

    @property
    def is_late(self) -> bool:
        """True if a turn has been due for a while, and there is room for it."""
        return self._waiting.due_in <= -self._timing.late_seconds and self._room_in() <= 0

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
        if shard in self._to_poll:
            self._to_poll.remove(shard)
            shard.reader.poll_more_often()
        if not shard.is_finished:
            delay = self._aligned(shard.reader.delay)
            self._waiting.put(shard, max(delay, shard.reader.least_delay))

    def poll_now(self, arn: str) -> None:
        """Makes the idle shards of this stream due now."""
        siblings = {shard for shard in self._waiting if shard.shard_key.stream == arn}
        idle = {shard for shard in siblings if shard.reader.poll_more_often()}
        self._waiting.make_due(idle.__contains__)
        self._to_poll.update(shard for shard in self._being_read if shard.shard_key.stream == arn)

    def on_shard_closed(self, shard_key: ShardKey) -> None:
        """Makes this shard due now, without further delays: it gets no more records."""
        shards = [*self._waiting, *self._being_read]
        closed = {shard for shard in shards if shard.shard_key == shard_key}
        for shard in closed:
            shard.reader.closed = True
        self._waiting.make_due(closed.__contains__)

    def pause(self, shard_key: ShardKey) -> None:
        """Stops reading this shard for a moment."""
        self._paused_until[shard_key] = self._clock.monotonic() + self._timing.pause_seconds

    def _aligned(self, pause: float) -> float:
        """Returns a long delay shortened, so that it ends together with those of others."""
        align = self._timing.align_seconds
        if pause < align:
            return pause
        return pause - (self._clock.monotonic() + self._phase + pause) % align

    def _room_in(self) -> float:
        """Seconds until another read may start."""
        timing = self._timing
        if len(self._being_read) < timing.reads_at_once:
            return 0.0
        if len(self._being_read) >= timing.reads_at_once_max:
            return math.inf
        slow_since = self._clock.monotonic() - timing.slow_read_seconds
        quick = sorted(since for since in self._being_read.values() if since > slow_since)
        if len(quick) < timing.reads_at_once:
            return 0.0
        return quick[len(quick) - timing.reads_at_once] - slow_since


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
    clients: dict[str, StreamsClient],
    *,
    credentials: WorkerCredentials | None = None,
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
    threads = WorkerThreads(writer, end=os._exit)
    if credentials is not None:
        credentials.on_refusal = threads.send_refusal
    client = functools.partial(_client, connection, dict(clients), credentials)
    serve(
        commands,
        threads,
        counters,
        client,
        credentials=credentials,
        record_filter=record_filter,
    )


def serve(
    commands: Pipe,
    threads: WorkerThreads,
    counters: SharedCounters,
    client: Callable[[ShardAssignment], StreamsClient],
    *,
    credentials: WorkerCredentials | None = None,
    record_filter: RecordFilter | None = None,
) -> None:
    """Obeys the manager's commands until their pipe ends; `client` returns a shard's client."""
    page_filter = None if record_filter is None else record_filter.matching_indexes
    reader = CommandReader(commands)
    while not reader.is_closed:
        for command in reader.receive(threads.check_in):
            match command:
                case ReadShard(assignment, slot):
                    _add(assignment, counters.at(slot), client, threads, page_filter)
                case PollNow(arn):
                    threads.poll_now(arn)
                case ShardClosed(arn, shard_id):
                    threads.on_shard_closed(ShardKey(arn, shard_id))
                case Pause(arn, shard_id):
                    threads.pause(ShardKey(arn, shard_id))
                case NewCredentials(keys) if credentials is not None:
                    credentials.take(keys)
        threads.check()


def _client(
    connection: AwsConfig,
    clients: dict[str, StreamsClient],
    credentials: WorkerCredentials | None,
    assignment: ShardAssignment,
) -> StreamsClient:
    place = place_of(assignment.arn)
    if place not in clients:
        clients[place] = for_worker(connection, assignment.arn, credentials)
    return clients[place]


def _add(
    assignment: ShardAssignment,
    counters: Counters,
    client: Callable[[ShardAssignment], StreamsClient],
    threads: WorkerThreads,
    page_filter: PageFilter | None,
) -> None:
    try:
        service = client(assignment).counting(counters)
    except StreamError as error:  # no client can be made
        threads.send(assignment.shard_key, [ReaderCrashed(str(error), fatal=True)])
    else:
        shard = AssignedShard(
            assignment,
            service,
            counters,
            page_filter=page_filter,
        )
        threads.add(shard)


class WorkerThreads:
    """As many threads as slow reads under way, and one; the others soon end.

    One thread waits for the next turn and takes it; another waits in its place only where the next
    turn is late: to pass on each turn would cost twice as much as a read.

    A thread that can't go on calls `end` with an exit status.
    """

    def __init__(
        self,
        writer: MessageWriter,
        *,
        end: Callable[[int], object],
        timing: WorkerTiming = WORKER_TIMING,
    ) -> None:
        self._writer = writer
        self._end = end
        self._timing = timing
        self._sending = threading.Lock()
        self._scheduler = ReadScheduler(CLOCK, timing=timing)
        self._lock = threading.Lock()
        self._turn = threading.Condition(self._lock)
        self._has_waiter = False
        self._spares: list[threading.Condition] = []  # the last one wakes first: the rest may end
        self._thread_count = 0
        self._is_closed = False

    def close(self) -> None:
        """Ends each thread after its read, and then the messages."""
        with self._lock:
            self._is_closed = True
            self._turn.notify_all()
            while self._spares:
                self._spares.pop().notify()
            self._end_messages()

    def _end_messages(self) -> None:
        if self._is_closed and not self._thread_count:
            self._writer.close()

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
            reads_in = min(self._scheduler.reads_in, self._timing.wait_seconds_max)
            return reads_in + self._timing.late_seconds

    def check(self) -> None:
        """Has another thread take the due turns while a read takes long."""
        with self._lock:
            self._ensure_waiter()

    def _ensure_waiter(self) -> None:
        if not self._has_waiter and (self._scheduler.is_late or not self._thread_count):
            self._wake_waiter()

    def poll_now(self, arn: str) -> None:
        """See `ReadScheduler.poll_now`."""
        with self._lock:
            self._scheduler.poll_now(arn)
            self._turn.notify()

    def on_shard_closed(self, shard_key: ShardKey) -> None:
        """See `ReadScheduler.on_shard_closed`."""
        with self._lock:
            self._scheduler.on_shard_closed(shard_key)
            self._turn.notify()

    def pause(self, shard_key: ShardKey) -> None:
        """See `ReadScheduler.pause`."""
        with self._lock:
            self._scheduler.pause(shard_key)

    def send_refusal(self, access_key: str) -> None:
        """Tells the manager that the service has refused the credentials of this access key."""
        self.send(ShardKey("", ""), [CredentialsRefused(access_key)])

    def send(self, shard_key: ShardKey, messages: Sequence[FromWorker]) -> None:
        """Sends a shard's messages; while the pipe is full, this and all other threads wait."""
        with self._sending:
            for message in messages:
                self._writer.send(shard_key, message)

    def _wake_waiter(self) -> None:
        """Makes a spare thread, or a new one, wait for the next turn."""
        self._has_waiter = True
        if self._spares:
            self._spares.pop().notify()
        else:
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
        """Runs a thread: waits for the next turn, reads, sends, and so on."""
        with self._lock:
            shard = self._next_turn()
        while shard is not None:
            messages = shard.read()
            with self._lock:
                self._scheduler.answered(shard)
            self.send(shard.shard_key, messages)
            with self._lock:
                self._scheduler.done(shard)
                self._turn.notify()
                if self._has_waiter and not self._is_closed and not self._is_woken():
                    return
                shard = self._next_turn()

    def _is_woken(self) -> bool:
        """Waits as a spare thread; False where no turn needs it for a while."""
        woken = threading.Condition(self._lock)
        self._spares.append(woken)
        woken.wait(self._timing.spare_seconds)
        if woken not in self._spares:  # also where it was woken as its time was over
            return True
        self._spares.remove(woken)
        return False

    def _next_turn(self) -> AssignedShard | None:
        """Returns the shard to read, once it is due; None after `close`."""
        self._has_waiter = True
        while not self._is_closed and (shard := self._scheduler.next()) is None:
            self._turn.wait(min(self._scheduler.due_in, self._timing.wait_seconds_max))
        if self._is_closed:
            return None
        self._has_waiter = False
        self._ensure_waiter()
        return shard
