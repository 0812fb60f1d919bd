"""What executors read, over a played stream."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from datetime import UTC, datetime, timedelta

from tests.spark.played import EXPIRED, PlayedQuery, PlayedStream, number
from tests.support.hand_clock import HandClock
from watcher.aws.model import AfterSequence, Position, TrimHorizon
from watcher.errors import CredentialsError, DataLossError, TransientError
from watcher.pull.ranges import Range


def test_a_task_gives_up_after_minutes_of_trouble(stream: PlayedStream, clock: HandClock) -> None:
    stream.write("a", range(10))
    query = PlayedQuery(stream, clock)
    stream.read_errors = [CredentialsError(EXPIRED) for _ in range(1000)]

    with pytest.raises(
        TransientError, match=r"shard a from its trim .* can't be read: AWS refused"
    ):
        query.read(Range("a", query.offset.shards["a"].position, number(9)))
    assert 300 < clock.passed < 330


@pytest.mark.parametrize("start", [AfterSequence(number(4)), TrimHorizon()])
@pytest.mark.parametrize("written", [10, 100], ids=["idle", "records follow"])
def test_a_range_of_which_nothing_is_left_ends(
    stream: PlayedStream,
    clock: HandClock,
    caplog: pytest.LogCaptureFixture,
    start: Position,
    written: int,
) -> None:
    stream.write("a", range(written))
    query = PlayedQuery(stream, clock, failOnDataLoss="false")
    stream.trimmed = 29

    assert query.read(Range("a", start, number(9))) == []
    assert "nothing is left of it" in caplog.text
    assert clock.passed < 60


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
