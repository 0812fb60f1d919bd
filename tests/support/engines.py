"""The engines over one played stream: what each of them delivers, and what it says is lost."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Set
from dataclasses import dataclass, field
from typing import Any

from tests.spark.played import PlayedQuery, PlayedStream, played_batch
from tests.support.hand_clock import HandClock
from tests.support.play import ARN, PlayedProcess
from tests.support.pulled import Pulled
from tests.support.wire import FIRST
from watcher.aws.counters import Counters, SharedCounters
from watcher.aws.model import ShardKey, TrimHorizon
from watcher.build import build_manager
from watcher.call_pool import CallPool
from watcher.delivery.handler import Handler
from watcher.options import WatchOptions
from watcher.pull.backlog import BacklogReader
from watcher.records.record import Record
from watcher.runtime.protocol import MessageQueue, MessageWriter, ShardAssignment
from watcher.runtime.watched_stream import WatchedStream
from watcher.runtime.watched_streams import WatchedStreams
from watcher.runtime.worker import AssignedShard, ReadScheduler
from watcher.runtime.workers import Workers
from watcher.streams.messages import Message


@dataclass
class Outcome:
    """What came out of an engine: the records' numbers, in order, and how many losses were said."""

    numbers: list[int] = field(default_factory=list)
    losses: int = 0


class Timeline(HandClock):
    """A clock on whose way things happen."""

    def __init__(self) -> None:
        super().__init__()
        self._plan: list[tuple[float, Callable[[], object]]] = []

    def at(self, seconds: float, happens: Callable[[], object]) -> None:
        self._plan.append((seconds, happens))
        self._plan.sort(key=lambda each: each[0])

    def sleep(self, seconds: float) -> None:
        until = self.passed + seconds
        while self._plan and self._plan[0][0] <= until:
            moment, happens = self._plan.pop(0)
            self.passed = max(self.passed, moment)
            happens()
        self.passed = until


def watch(stream: PlayedStream, clock: Timeline, seconds: float) -> Outcome:
    """The processes, their readers stepped whenever the manager waits."""
    return _watched(stream, clock, WatchOptions(start=TrimHorizon(), poll_max=1.0), seconds)


def watch_up_to_now(stream: PlayedStream, clock: Timeline) -> Outcome:
    """The same with `--no-follow`."""
    return _watched(
        stream, clock, WatchOptions(start=TrimHorizon(), poll_max=1.0, follow=False), 1000
    )


def _watched(
    stream: PlayedStream, clock: Timeline, settings: WatchOptions, seconds: float
) -> Outcome:
    outcome = Outcome()
    queue = _ReadingQueue(stream, clock)
    manager = build_manager(
        settings,
        streams=WatchedStreams(
            [WatchedStream(ARN, settings, service=stream, clock=clock)], clock=clock
        ),
        handlers=[Handler("seen", lambda record: outcome.numbers.append(_number(record)))],
        workers=Workers(queue, queue.start, clock),
        clock=clock,
    )
    clock.at(seconds, manager.stop)
    outcome.losses = manager.run().losses
    return outcome


class _ReadingQueue(MessageQueue):
    def __init__(self, stream: PlayedStream, clock: Timeline) -> None:
        super().__init__()
        self._stream = stream
        self._clock = clock
        self._readers = ReadScheduler(clock)
        self._said: deque[tuple[ShardKey, Message]] = deque()

    def start(
        self, name: str, work: ShardAssignment, writer: MessageWriter, board: SharedCounters
    ) -> Any:
        def begin(work: ShardAssignment) -> None:
            self._readers.add(AssignedShard(work, self._stream, Counters(), self._clock))

        return PlayedProcess(0, begin)

    def receive(
        self, timeout: float, held: Set[str] = frozenset()
    ) -> tuple[ShardKey, Message] | tuple[str, None] | None:
        until = self._clock.monotonic() + timeout
        while True:
            if self._said:
                return self._said.popleft()
            if (reading := self._readers.next()) is not None:
                self._said.extend((reading.shard_key, message) for message in reading.read())
                self._readers.done(reading)
                continue
            if self._clock.monotonic() >= until:
                return None
            self._clock.sleep(0.05)


def pull(stream: PlayedStream, clock: Timeline, seconds: float) -> Outcome:
    """`Stream`."""
    pulled, outcome = Pulled(stream, ARN, "trim_horizon", clock=clock), Outcome()
    while clock.passed < seconds:
        if (record := next(pulled)) is None:
            clock.sleep(0.05)
        else:
            outcome.numbers.append(_number(record))
    outcome.losses = len(pulled.losses)
    return outcome


def spark_stream(stream: PlayedStream, clock: Timeline, seconds: float) -> Outcome:
    """Spark's planner, and its executors' reads."""
    query = PlayedQuery(stream, clock, failOnDataLoss="false")
    query.run(seconds)
    return Outcome(query.delivered, query.planner.report()["data_losses"])


def spark_available_now(stream: PlayedStream, clock: Timeline) -> Outcome:
    """The same with `availableNow`."""
    query = PlayedQuery(stream, clock)
    query.planner.stop_at_now()
    while query.poll():
        pass
    return Outcome(query.delivered)


def spark_batch(stream: PlayedStream, clock: Timeline, seconds: float = 0.0) -> Outcome:
    """A batch read once everything has happened."""
    clock.sleep(seconds)

    batch = played_batch(stream, clock)
    rows = [part for each in batch.partitions() for part in batch.read(each)]
    found = [int(text) - FIRST for part in rows for text in part["sequence_number"].to_pylist()]
    return Outcome(sorted(found))  # the rows of a DataFrame have an order in a partition only


def retained(stream: PlayedStream, clock: Timeline, seconds: float = 0.0) -> Outcome:
    """The time machine's reading: all there is at once, and what has come since at the end."""
    reading = BacklogReader(ARN, stream, clock=clock, calls=CallPool(threads=False))
    records = list(reading.read())
    clock.sleep(max(0.0, seconds - clock.passed))
    records += reading.read_on() if seconds else ()
    return Outcome([_number(record) for record in records], len(reading.losses))


def _number(record: Record) -> int:
    return int(record.sequence_number) - FIRST


UP_TO_NOW = (watch_up_to_now, spark_available_now, spark_batch, retained)
ENGINES = (watch, pull, spark_stream, spark_batch, retained)
