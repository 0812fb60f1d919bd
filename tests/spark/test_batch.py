"""The batch read of a stream: up to now, or up to a time; over a played stream, without a JVM."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

pytest.importorskip("pyspark")

from tests.spark.played import InTurn, PlayedStream, played_batch
from tests.support.hand_clock import HandClock
from tests.support.play import ARN
from tests.support.wire import FIRST, created
from watcher.spark.batch_reader import BatchReader
from watcher.spark.micro_batch import SourceLimits
from watcher.spark.options import parse
from watcher.spark.planner import Planner


def numbers_of(reader: BatchReader) -> list[int]:
    rows = [batch for task in reader.partitions() for batch in reader.read(task)]
    found = [each for batch in rows for each in batch.column("sequence_number").to_pylist()]
    return sorted(int(each) - FIRST for each in found)


def test_a_batch_finds_the_ends_of_open_shards_side_by_side() -> None:
    clock = HandClock()
    played = PlayedStream(clock)
    for each in range(100):
        played.write(f"s{each}", [each])

    assert numbers_of(played_batch(played, clock)) == list(range(100))
    assert clock.passed < 15


def test_a_batch_ends_at_a_time_wherever_its_records_are_read() -> None:
    """In a closed shard by an executor; in open ones by the driver, also behind a backlog."""
    clock = HandClock()
    played = PlayedStream(clock)
    played.knows_times = True
    played.write("closed", range(0, 60_000, 3000))
    played.write("child", [90_000], parent="closed")
    played.write("backlog", range(1000, 60_000, 3000))
    played.write("idle", [2000])
    clock.sleep(3600)
    end = datetime.fromtimestamp(created(30_000), UTC).isoformat()

    found = numbers_of(played_batch(played, clock, endingPosition=end))

    expected = [*range(0, 30_001, 3000), *range(1000, 30_001, 3000), 2000]
    assert found == sorted(expected)


def test_a_batch_holds_no_more_than_a_micro_batch_and_leaves_the_rest_to_executors() -> None:
    clock = HandClock()
    played = PlayedStream(clock)
    played.record_size = 1000
    for each in range(20):
        played.write(f"s{each}", range(each * 50, each * 50 + 50))
    given = parse({"stream": ARN}, streaming=False)
    limits = SourceLimits(shard=4096, batch=16384)
    driver = InTurn(played, clock, limits=limits)

    ranges = Planner(given, ARN, played, driver, clock=clock).up_to_now()

    held = [each for each in ranges if each.pages is not None]
    assert 0 < sum(each.size for each in held) <= limits.batch and len(held) < len(ranges) == 20
