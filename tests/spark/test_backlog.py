"""A backlog is left to executors: the driver looks where it ends, and does not read it."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from tests.spark.played import PlayedQuery, PlayedStream
from tests.support.hand_clock import HandClock
from watcher.spark import offsets
from watcher.streams import read_rate


@pytest.fixture
def stream(clock: HandClock) -> PlayedStream:
    """A shard of ten full pages that were written years ago; its tip was just now."""
    stream = PlayedStream(clock)
    stream.page_size = 500
    stream.write("a", range(5000))
    stream.tip = 4995
    return stream


def test_an_old_page_that_is_full_tells_a_backlog_whose_end_is_the_tip(
    stream: PlayedStream, clock: HandClock
) -> None:
    query = PlayedQuery(stream, clock)

    query.poll()

    assert query.sizes == [4996]
    assert query.delivered == [*range(4996)]
    query.run(5)
    assert query.delivered == [*range(5000)]


def test_the_driver_reads_one_page_of_it(stream: PlayedStream, clock: HandClock) -> None:
    query = PlayedQuery(stream, clock)
    end = query.planner.latest(query.offset, None)
    assert len(stream.reads) == 2, "a page, and one record near the tip"
    assert query.planner.report()["lag_seconds"] == 0, "all of it is in this micro-batch"

    again = query.planner.latest(query.offset, None)

    assert again == end
    assert len(stream.reads) == 2, "it is parked until executors have been there"


def test_shards_that_a_query_begins_with_are_left_to_executors_side_by_side(
    stream: PlayedStream, clock: HandClock
) -> None:
    stream.write("b", range(10_000, 15_000))
    query = PlayedQuery(stream, clock)

    query.poll()

    before, after = query.batches[-1]
    assert [each.shard_id for each in offsets.ranges(before, after)] == ["a", "b"]


@pytest.mark.parametrize(("limit", "asked"), [({}, False), ({"maxRecordsPerTrigger": "9"}, True)])
def test_the_next_page_of_a_backlog_is_not_asked_for_ahead(
    stream: PlayedStream, clock: HandClock, limit: dict[str, str], asked: bool
) -> None:
    """It is the executor's to read; where records are counted here, the driver reads on."""
    stream.record_size = 1000
    query = PlayedQuery(stream, clock, **limit)

    query.planner.latest(query.offset, None)

    assert (stream.asked_ahead > 0) is asked


def test_old_pages_that_are_not_full_tell_it_when_there_are_two(
    stream: PlayedStream, clock: HandClock
) -> None:
    stream.page_size = 400
    query = PlayedQuery(stream, clock)

    query.run(20)

    assert query.sizes[:2] == [4996, 4]
    assert query.delivered == [*range(5000)]


def test_one_that_is_large_is_full_as_the_reading_itself_has_it(
    stream: PlayedStream, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The simulation draws a size for each seed, also once this is imported."""
    monkeypatch.setattr(read_rate, "FULL_BYTES", 1000)
    stream.page_size = 400
    query = PlayedQuery(stream, clock)

    query.poll()

    assert query.sizes == [4996]


@pytest.mark.parametrize("tip", [None, 3, 5000])
def test_without_a_number_near_the_tip_the_driver_reads(
    stream: PlayedStream, clock: HandClock, tip: int | None
) -> None:
    """A service without AT_TIMESTAMP; one that answers what was read; a quiet hour."""
    stream.tip = tip
    query = PlayedQuery(stream, clock)

    query.planner.latest(query.offset, None)

    assert len(stream.reads) > 10
    query.run(60)
    assert query.delivered == [*range(5000)]
