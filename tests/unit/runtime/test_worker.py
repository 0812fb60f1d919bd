"""A worker's process: it says all it reads, and never outlives its manager."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from multiprocessing.process import BaseProcess

import pytest

from tests.simulator import Simulator
from tests.support.eventually import PATIENCE
from tests.support.wire import shard_key
from watcher.aws import deadline
from watcher.aws.arns import place_of
from watcher.aws.config import AwsConfig
from watcher.aws.connect import for_worker
from watcher.aws.counters import SharedCounters
from watcher.aws.credentials import Keys, WorkerCredentials
from watcher.aws.model import ShardKey, TrimHorizon
from watcher.errors import StreamError
from watcher.runtime import worker
from watcher.runtime.protocol import (
    CommandWriter,
    FromWorker,
    MessageQueue,
    ReadShard,
    ShardAssignment,
)
from watcher.streams.messages import IteratorGranted, Message, Page, ReaderCrashed, ReaderEnded

fork = multiprocessing.get_context("fork")


workers: list[Worker] = []
"""Those of the test that runs: one that nobody can tell anything ends."""


@pytest.fixture
def queue() -> Iterator[MessageQueue]:
    made = MessageQueue()
    yield made
    made.close()
    while workers:
        workers.pop().close()


class Worker:
    """A worker's process that reads a simulator's first shard, and others on demand."""

    def __init__(self, sim: Simulator, queue: MessageQueue) -> None:
        self._sim = sim
        self._connection = AwsConfig("us-east-1", None, sim.endpoint)
        self._counters = SharedCounters(8)
        writer = queue.writer("worker")
        reading, writing = multiprocessing.Pipe(duplex=False)
        clients = {place_of(sim.stream_arn): for_worker(self._connection, sim.stream_arn)}
        self._commands = CommandWriter(writing)
        self.process = fork.Process(
            target=worker.run,
            args=(reading, writer, self._counters, self._connection, clients),
            kwargs={"credentials": WorkerCredentials(Keys("k", "s", None))},
        )
        self.process.start()
        writer.close()
        reading.close()
        workers.append(self)

    def read(self, shard: int = 0) -> None:
        """Have a shard read."""
        name, arn = self._sim.shards[shard].id, self._sim.stream_arn
        work = ShardAssignment(arn, name, TrimHorizon(), None, 0.05)
        self._commands.send(ReadShard(work, self._counters.new().slot))

    def close(self) -> None:
        self._commands.close()


def started(sim: Simulator, queue: MessageQueue) -> BaseProcess:
    """A process that reads the simulator's first shard."""
    worker = Worker(sim, queue)
    worker.read()
    return worker.process


def said(queue: MessageQueue, until: type) -> list[FromWorker]:
    """What comes up to the first message of a kind (NoneType: the end)."""
    messages: list[FromWorker] = []
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        received = queue.receive(1.0)
        if received is None:
            continue
        if received[1] is not None:
            messages.append(received[1])
        if isinstance(received[1], until):
            return messages
    raise AssertionError(f"no {until} after {messages}")


def test_a_shard_is_read_to_its_end_and_the_process_ends_when_it_is_dismissed(
    simulator: Simulator, queue: MessageQueue
) -> None:
    simulator.write("a", 30)
    simulator.rotate()
    process = started(simulator, queue)
    messages = said(queue, ReaderEnded)
    workers.pop().close()
    said(queue, type(None))
    process.join(PATIENCE)
    assert process.exitcode == 0
    assert isinstance(messages[0], IteratorGranted) and messages[-1] == ReaderEnded(True)
    numbers = [
        record.sequence_number
        for message in messages
        if isinstance(message, Page)
        for record in message.opened(shard_key("s"))
    ]
    assert numbers == [record.sequence_number for record in simulator.records]


@pytest.mark.parametrize(
    ("error", "fatal"), [(StreamError("no AWS region"), True), (ZeroDivisionError("ours"), False)]
)
def test_an_error_is_said_and_fatal_where_only_the_user_can_mend_it(
    error: Exception,
    fatal: bool,
    simulator: Simulator,
    queue: MessageQueue,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*arguments: object) -> list[Message]:
        raise error

    monkeypatch.setattr("watcher.runtime.worker.ShardReader.attempt", fails)
    started(simulator, queue)
    (failed,) = said(queue, ReaderCrashed)
    assert isinstance(failed, ReaderCrashed)
    assert failed.fatal == fatal and str(error) in failed.text


def test_ctrl_c_is_not_for_a_worker_and_sigterm_ends_it(
    simulator: Simulator, queue: MessageQueue
) -> None:
    process = started(simulator, queue)
    said(queue, IteratorGranted)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGINT)
    simulator.write("a", 1)
    said(queue, Page)
    process.terminate()
    process.join(PATIENCE)
    assert process.exitcode == -signal.SIGTERM


def test_shards_share_a_process_and_a_hanging_one_holds_no_other(
    simulator: Simulator, queue: MessageQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deadline, "READ_SECONDS", 10 * PATIENCE)
    simulator.split(simulator.shards[0].id, 12)
    hanging = simulator.shards[1:7]
    for shard in hanging:
        simulator.fail_next("GetShardIterator", "hang", times=1, shard_id=shard.id)
    worker = Worker(simulator, queue)
    for number in range(1, 13):
        worker.read(number)
    end = time.monotonic() + PATIENCE
    heard: set[str] = set()
    while len(heard) < 6 and time.monotonic() < end:
        if (received := queue.receive(0.1)) is not None:
            assert isinstance(received[0], ShardKey)
            heard.add(received[0].shard_id)
    assert heard == {shard.id for shard in simulator.shards[7:]}
