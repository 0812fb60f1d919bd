"""The threads that drive a read-ahead."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

pytest.importorskip("pyspark")

from tests.spark.played import PlayedStream
from tests.support.hand_clock import HandClock
from tests.support.play import ARN
from watcher.aws.model import TrimHorizon
from watcher.clock import CLOCK
from watcher.errors import StreamError
from watcher.spark.read_ahead import ReadAhead
from watcher.streams.lineage import TrackedShard


@pytest.fixture
def stream() -> PlayedStream:
    return PlayedStream(HandClock())


@pytest.fixture
def threads(stream: PlayedStream) -> Iterator[ReadAhead]:
    made = ReadAhead(ARN, CLOCK, connect=lambda: stream)
    yield made
    made.stop()


def add(threads: ReadAhead, name: str) -> None:
    with threads.lock:
        threads.add(TrackedShard(name, None, TrimHorizon()), None)
        threads.wake()


def until(threads: ReadAhead, condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    with threads.lock:
        while not condition():
            assert time.monotonic() < deadline
            threads.wait(1)


def count(threads: ReadAhead, name: str) -> int:
    return sum(page.count for page in threads.shards[name].pages)


def test_many_shards_are_read_by_few_threads(threads: ReadAhead, stream: PlayedStream) -> None:
    before = set(threading.enumerate())
    names = [f"s{index}" for index in range(20)]
    for name in names:
        stream.write(name, range(10))
        add(threads, name)

    until(threads, lambda: all(count(threads, name) == 10 for name in names))

    assert len(set(threading.enumerate()) - before) == 8
    threads.stop()
    assert set(threading.enumerate()) <= before


def test_many_reads_end_a_wait_once(threads: ReadAhead, stream: PlayedStream) -> None:
    for index in range(20):
        stream.write(f"s{index}", range(10))
        add(threads, f"s{index}")
    with threads.lock:
        threads.wait(5, least=0.5)
        assert all(shard.attempted for shard in threads.shards.values())


def test_what_a_thread_can_not_bear_is_left_for_the_planner(
    threads: ReadAhead, stream: PlayedStream
) -> None:
    stream.write("a", range(10))
    stream.read_errors = [StreamError("no permission")]
    add(threads, "a")

    until(threads, lambda: threads.failure)

    assert str(threads.failure) == "no permission"


def test_threads_that_wait_for_long_are_woken_for_what_is_due_before(
    threads: ReadAhead, stream: PlayedStream
) -> None:
    stream.write("a", range(10))
    stream.closed = {"a"}
    add(threads, "a")
    until(threads, lambda: count(threads, "a") == 10)
    stream.closed = set()
    stream.write("a", range(10, 15))

    with threads.lock:  # there is nothing else that they would wake up for
        threads.start_reader(threads.shards["a"], 0.05)
        threads.wake()

    until(threads, lambda: count(threads, "a") == 15)
