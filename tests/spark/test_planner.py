"""The planner and the executors' reading, over a played stream; the simulation has the rest."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

pytest.importorskip("pyspark")

from tests.spark.played import EXPIRED, PlayedQuery, PlayedStream, number
from tests.support.hand_clock import HandClock
from tests.support.play import ARN
from tests.support.wire import created
from watcher.aws.model import AfterSequence, Position, TrimHorizon
from watcher.errors import (
    CredentialsError,
    DataLossError,
    StreamError,
    TransientError,
    UsageError,
)
from watcher.pull.ranges import Range
from watcher.spark.micro_batch import SourceLimits
from watcher.spark.offsets import Offset, ShardOffset


def test_finished_shards_leave_the_offset(stream: PlayedStream, clock: HandClock) -> None:
    stream.write("a", range(30))
    query = PlayedQuery(stream, clock)
    query.run(5)
    stream.write("b", range(30, 60), parent="a")
    stream.write("c", range(60, 90), parent="a")
    query.run(20)

    assert sorted(query.delivered) == [*range(90)]
    assert query.offset.shards.keys() == {"b", "c"}


def test_a_shard_that_is_listed_as_open_and_refused_is_read_on_where_it_was(
    stream: PlayedStream, clock: HandClock, caplog: pytest.LogCaptureFixture
) -> None:
    stream.write("a", range(10))
    query = PlayedQuery(stream, clock)
    query.run(5)
    stream.refused = {"a"}
    query.run(30)
    before = len(stream.reads)
    stream.write("a", range(10, 20))
    stream.refused = set()
    query.run(5)

    assert query.delivered == [*range(20)]
    assert len(stream.reads) > before
    assert query.planner.report()["data_losses"] == 0, "the listing has it: nothing is lost"
    assert "Shard a: 4 failures in a row: no such shard" in caplog.messages
    assert not query.offset.shards["a"].finished


def test_nothing_after_a_loss_is_given_out_before_it_is_told(
    stream: PlayedStream, clock: HandClock
) -> None:
    stream.write("a", range(10))
    query, lenient = PlayedQuery(stream, clock), PlayedQuery(stream, clock, failOnDataLoss="false")
    query.run(5)
    lenient.run(5)
    stream.write("a", range(10, 30))
    stream.trimmed = 14
    query.start()
    lenient.start()

    with pytest.raises(DataLossError, match=r"shard a from sequence .*failOnDataLoss=false"):
        query.run(10)
    assert query.delivered == [*range(10)]
    lenient.run(10)
    assert lenient.delivered == [*range(10), *range(15, 30)]
    assert lenient.planner.report()["data_losses"] == 1


def test_a_deleted_stream_ends_the_query_once_all_is_delivered(
    stream: PlayedStream, clock: HandClock
) -> None:
    stream.write("a", range(10))
    query = PlayedQuery(stream, clock, failOnDataLoss="false")
    query.run(5)
    stream.delete()

    with pytest.raises(StreamError, match=f"no stream {ARN}: it was deleted"):
        query.run(60)
    assert query.delivered == [*range(10)]


def test_a_shard_that_opened_and_waited_too_long_while_the_query_was_away_is_a_loss(
    stream: PlayedStream, clock: HandClock
) -> None:
    opened = int((clock.time() - 25 * 3600) * 1000)
    name = f"shardId-{opened:020}-a"
    stream.write(name, range(10))
    query = PlayedQuery(stream, clock)
    query.offset = Offset(ARN, {"over": ShardOffset(AfterSequence(number(0)), finished=True)})

    with pytest.raises(DataLossError, match=f"shard {name}, unread since"):
        query.run(5)


def test_another_stream_s_checkpoint_is_refused(stream: PlayedStream, clock: HandClock) -> None:
    query = PlayedQuery(stream, clock)
    with pytest.raises(UsageError, match="choose another checkpoint"):
        query.planner.latest(Offset("arn:other", {}), None)


def test_an_idle_query_asks_the_service_seldom_and_spark_waits_for_no_answer(
    stream: PlayedStream, clock: HandClock
) -> None:
    stream.write("a", range(10))
    query = PlayedQuery(stream, clock)
    query.run(10)
    before, longest, end = stream.listings, 0.0, clock.monotonic() + 60

    while (began := clock.monotonic()) < end:
        query.poll()
        longest = max(longest, clock.monotonic() - began)

    assert stream.listings - before <= 16
    assert longest < 0.1


@pytest.mark.parametrize(("limit", "lag"), [({"maxRecordsPerTrigger": "10"}, 7200), ({}, 0)])
def test_the_report_is_of_what_comes_after_the_micro_batch(
    stream: PlayedStream, clock: HandClock, limit: dict[str, str], lag: int
) -> None:
    """Spark shows it until there is another one: "81 s behind" stayed when all was archived."""
    stream.page_size = 100
    stream.write("a", range(60))
    stream.write("b", range(7_200_000, 7_200_020), parent="a")
    clock.slept = created(7_200_000) - clock.time()
    query = PlayedQuery(stream, clock, **limit)
    query.poll()
    assert query.planner.report()["lag_seconds"] == pytest.approx(lag, abs=60)

    query.run(60)

    assert len(query.delivered) == 80
    assert query.planner.report()["lag_seconds"] == 0


@pytest.mark.parametrize(
    ("limit", "sizes"), [({"maxRecordsPerTrigger": "30"}, [30, 5]), ({}, [35])]
)
def test_a_limit_above_a_page_and_the_first_micro_batch_are_filled_from_a_backlog(
    stream: PlayedStream, clock: HandClock, limit: dict[str, str], sizes: list[int]
) -> None:
    clock.slept = created(0) - clock.time()  # just written: executors read what is older
    stream.write("a", range(35))
    query = PlayedQuery(stream, clock, **limit)
    query.run(30)

    assert query.delivered == [*range(35)]
    assert [each for each in query.sizes if each] == sizes


def test_a_batch_holds_no_more_than_goes_through_spark(
    stream: PlayedStream, clock: HandClock
) -> None:
    class SmallBatches(PlayedQuery):
        limits = SourceLimits(shard=2000)

    stream.write("a", range(500))
    query = SmallBatches(stream, clock)
    query.run(60)

    assert query.delivered == [*range(500)]
    assert len(query.batches) > 3


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
