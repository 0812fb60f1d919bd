"""What executors read, over a played stream."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

import logging
from datetime import UTC, datetime, timedelta

from tests.spark.played import EXPIRED, PlayedQuery, PlayedStream, number, numbers
from tests.support.hand_clock import HandClock
from watcher.aws.model import AfterSequence, TrimHorizon
from watcher.errors import CredentialsError, DataLossError, TransientError
from watcher.pull.ranges import Range
from watcher.spark import offsets


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def stream(clock: HandClock) -> PlayedStream:
    return PlayedStream(clock)


def test_expired_credentials_do_not_end_a_task(stream: PlayedStream, clock: HandClock) -> None:
    stream.write("a", range(10))
    query = PlayedQuery(stream, clock)
    query.run(1)
    ((start, _),) = query.batches
    stream.read_errors = [CredentialsError(EXPIRED) for _ in range(3)]

    again = query.read(Range("a", start.shards["a"].position, number(9)))

    assert sum(page.count for page in again) == 10
    assert stream.renewed == 3


def test_a_task_gives_up_after_minutes_of_trouble(stream: PlayedStream, clock: HandClock) -> None:
    stream.write("a", range(10))
    query = PlayedQuery(stream, clock)
    stream.read_errors = [CredentialsError(EXPIRED) for _ in range(1000)]

    with pytest.raises(
        TransientError, match=r"shard a from its trim .* can't be read: AWS refused"
    ):
        query.read(Range("a", query.offset.shards["a"].position, number(9)))
    assert 300 < clock.passed < 330


def test_a_range_of_which_nothing_is_left_ends(
    stream: PlayedStream, clock: HandClock, caplog: pytest.LogCaptureFixture
) -> None:
    """On an open shard the records after it go on for ever."""
    stream.write("a", range(100))
    query = PlayedQuery(stream, clock, failOnDataLoss="false")
    stream.trimmed = 29
    start = AfterSequence(number(4))

    with caplog.at_level(logging.WARNING, "watcher"):
        assert query.read(Range("a", start, number(9))) == []

    assert "nothing is left of it" in caplog.text
    assert clock.passed < 60


def test_a_range_of_which_nothing_is_left_ends_on_an_idle_shard(
    stream: PlayedStream, clock: HandClock, caplog: pytest.LogCaptureFixture
) -> None:
    stream.write("a", range(10))
    query = PlayedQuery(stream, clock, failOnDataLoss="false")
    stream.trimmed = 10
    for start in (AfterSequence(number(4)), TrimHorizon()):
        assert query.read(Range("a", start, number(9))) == []
        assert "nothing is left of it" in caplog.text
        caplog.clear()
    assert clock.passed < 60


def test_a_range_whose_first_records_are_gone_is_a_loss(
    stream: PlayedStream, clock: HandClock
) -> None:
    stream.write("a", range(30))
    query = PlayedQuery(stream, clock)
    query.run(1)
    (between,) = offsets.ranges(*query.batches[0])
    stream.trimmed = 3  # between the plan and the executor's turn

    with pytest.raises(DataLossError, match=f"shard a from sequence number {number(0)}"):
        query.read(between)


def test_a_micro_batch_read_again_begins_with_the_same_record_where_time_tells_another(
    stream: PlayedStream, clock: HandClock
) -> None:
    """A time is refused at first (the service's clock is behind) and then tells a later record."""
    stream.write("a", range(30))
    query = PlayedQuery(stream, clock, startingPosition="2023-11-14T22:13:50Z")
    query.run(1)
    stream.tip = 20

    planned = [between for batch in query.batches for between in offsets.ranges(*batch)]
    again = [each for between in planned for each in query.read(between)]

    assert numbers(again) == query.delivered == list(range(30))


def test_a_closed_shard_that_an_executor_reads_a_day_late_is_a_loss(
    stream: PlayedStream, clock: HandClock
) -> None:
    """Without a number to begin at, the service says nothing of what was there."""
    opened = datetime.fromtimestamp(clock.time(), UTC)
    shard_id = f"shardId-{int(opened.timestamp() * 1000):020d}-a"
    stream.write(shard_id, range(30))
    stream.closed.add(shard_id)
    query = PlayedQuery(stream, clock)
    between = Range(shard_id, TrimHorizon(), since=opened)
    assert len(query.read(between)) == 3

    clock.sleep(timedelta(hours=25).total_seconds())
    stream.trimmed = 9

    with pytest.raises(DataLossError, match=f"{shard_id}, unread since"):
        query.read(between)


def test_a_page_is_cut_at_the_end_of_a_range(stream: PlayedStream, clock: HandClock) -> None:
    stream.write("a", range(100))
    query = PlayedQuery(stream, clock)

    (page,) = query.read(Range("a", AfterSequence(number(4)), number(9)))

    assert (page.count, page.last_sequence_number) == (5, number(9))
