"""The workers' processes: they live in the program's environment, however they are started."""

from __future__ import annotations

import multiprocessing
import signal
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import pytest

from tests.simulator import Simulator
from watcher import process_start
from watcher.aws.client import StreamsClient
from watcher.aws.config import AwsConfig
from watcher.aws.connect import for_worker
from watcher.aws.counters import SharedCounters
from watcher.aws.model import TrimHorizon
from watcher.runtime import processes
from watcher.runtime.processes import WorkerStarter
from watcher.runtime.protocol import MessageQueue, ReadShard, ShardAssignment
from watcher.runtime.worker import Worker
from watcher.runtime.workers import StartProcess
from watcher.streams.messages import Page


def where_it_is(simulator: Simulator, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of a program that reads this simulator."""
    for name, value in simulator.environment.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_a_worker_reads_where_the_environment_says_now(
    simulator: Simulator, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not where it said as the fork server was started: a notebook sets it between two watches."""
    monkeypatch.setattr(process_start, "processes", lambda **_: multiprocessing.get_context(method))
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB_STREAMS", "http://127.0.0.1:9")
    forkserver.ensure_running()
    monkeypatch.delenv("AWS_ENDPOINT_URL_DYNAMODB_STREAMS")
    where_it_is(simulator, monkeypatch)
    assert_it_reads(simulator, WorkerStarter(AwsConfig()))


def test_a_worker_finds_its_files_where_the_program_began(
    simulator: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A handler may go to another folder before one is started anew."""
    context = multiprocessing.get_context("forkserver")
    monkeypatch.setattr(process_start, "processes", lambda **_: context)
    (tmp_path / "config").write_text(f"[default]\nendpoint_url = {simulator.endpoint}\n")
    for name, value in simulator.environment.items():
        if "ENDPOINT" not in name:
            monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_CONFIG_FILE", "config")
    monkeypatch.chdir(tmp_path)
    started = WorkerStarter(AwsConfig())
    monkeypatch.chdir("/")
    assert_it_reads(simulator, started)


def assert_it_reads(simulator: Simulator, start: StartProcess) -> None:
    simulator.bulk(3)
    queue, shared_counters = MessageQueue(), SharedCounters(8)
    writer = queue.writer("worker")
    shard = simulator.shards[0].id
    work = ShardAssignment(simulator.stream_arn, shard, TrimHorizon(), None, 0.05)
    process = start("worker", work, writer, shared_counters)
    try:
        writer.close()
        process.send(ReadShard(work, shared_counters.new().slot))
        said = (queue.receive(10) for _ in range(3))
        assert any(isinstance(each and each[1], Page) for each in said)
    finally:
        process.kill()
        process.join()
        process.close()
        queue.close()


def test_all_tables_of_a_region_are_read_with_one_client(
    simulator: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One for each of sixty took the processes twice their memory."""
    made: list[str] = []

    def noting(connection: AwsConfig, arn: str, *more: Any) -> StreamsClient:
        made.append(arn)
        return for_worker(connection, arn, *more)

    monkeypatch.setattr(process_start, "processes", lambda **_: multiprocessing.get_context("fork"))
    monkeypatch.setattr(processes, "for_worker", noting)
    where_it_is(simulator, monkeypatch)
    arns = [simulator.stream_arn, *filter(None, map(simulator.add_table, ("users", "shop")))]
    start, queue, shared_counters = WorkerStarter(AwsConfig()), MessageQueue(), SharedCounters(8)
    for arn in arns:
        writer = queue.writer(arn)
        work = ShardAssignment(arn, "s", TrimHorizon(), None, 1)
        process = start("worker", work, writer, shared_counters)
        writer.close()
        process.kill()
        process.join()
        process.close()
    queue.close()
    assert made == arns[:1]


def test_the_messages_of_a_worker_in_a_thread_end_with_it(
    simulator: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    where_it_is(simulator, monkeypatch)
    queue, counters = MessageQueue(), SharedCounters(8)
    start = WorkerStarter(AwsConfig(), in_threads=True)
    writer = queue.writer("worker")
    shard = simulator.shards[0].id
    work = ShardAssignment(simulator.stream_arn, shard, TrimHorizon(), None, 0.05)
    process = start("worker", work, writer, counters)
    writer.close()
    process.send(ReadShard(work, counters.new().slot))
    assert queue.receive(60) is not None and process.exitcode is None
    process.terminate()
    while (message := queue.receive(60)) != ("worker", None):
        assert message is not None
    process.join()
    assert process.exitcode == 0
    start.close()
    queue.close()


def test_signals_interrupt_the_main_thread_and_not_a_worker_s(
    simulator: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[set[int]] = []
    monkeypatch.setattr(
        Worker,
        "serve",
        lambda *_, **more: seen.append({*signal.pthread_sigmask(signal.SIG_BLOCK, [])}),
    )
    queue, start = MessageQueue(), WorkerStarter(AwsConfig(), in_threads=True)
    writer = queue.writer("a")
    work = ShardAssignment(simulator.stream_arn, "s", TrimHorizon(), None, 1)
    made = start("a", work, writer, SharedCounters(8))
    writer.close()
    made.join()
    assert queue.receive(60) == ("a", None)
    queue.close()
    assert {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM} <= seen[0]
