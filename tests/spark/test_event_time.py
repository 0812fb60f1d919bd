"""Windows of event time over shards that rotate: a watermark drops nothing of a backlog."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("pyspark")

from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.functions import window

from tests.simulator import Simulator
from tests.spark.conftest import PATIENCE, options
from tests.spark.played import PlayedQuery, PlayedStream
from tests.support.hand_clock import HandClock
from tests.support.wire import created
from watcher.spark.micro_batch import LIMITS, SourceLimits

HOUR = 3600
BEGAN = created(0)
WINDOW = 10 * 60
LATE = 10 * 60
LINEAGES = 4


@pytest.fixture
def clock() -> HandClock:
    """A day after the first record."""
    clock = HandClock()
    clock.slept = BEGAN + 25 * HOUR - clock.time()
    return clock


def shard_id(opened: float, lineage: int) -> str:
    return f"shardId-{int((BEGAN + opened) * 1000):020}-{lineage}"


@pytest.fixture
def stream(clock: HandClock) -> PlayedStream:
    """A day of changes: four lineages rotate every four hours, and one was split once more."""
    stream = PlayedStream(clock)
    stream.page_size = 1000
    for lineage in range(LINEAGES):
        parent: str | None = None
        ends = sorted({*range(0, 25 * HOUR, 4 * HOUR), *((10 * HOUR,) if not lineage else ())})
        for opened, closed in pairwise(ends):
            name = shard_id(opened, lineage)
            times = range(opened + lineage, closed, 70)
            stream.write(name, [second * 1000 + lineage for second in times], parent=parent)
            parent = name
    return stream


def batches(query: PlayedQuery) -> Iterator[list[int]]:
    """The seconds at which the changes of each micro-batch were made."""
    written = sum(map(len, query.stream.records_of.values()))
    polls = 0
    while len(query.delivered) < written:
        polls += 1
        assert polls < 10_000
        before = len(query.delivered)
        # It may be that it only says that a shard has ended.
        if query.poll() and len(query.delivered) > before:
            yield [created(number) for number in query.delivered[before:]]


def dropped(seconds_of: Sequence[Sequence[int]]) -> tuple[int, int]:
    """How many windows are wrong, and how many changes are missing: as Spark counts them.

    A change is dropped where its window has ended before the watermark, which is behind the newest
    change of all micro-batches before.
    """
    watermark, missing = 0, Counter[int]()
    for seconds in seconds_of:
        for second in seconds:
            window = second // WINDOW
            if (window + 1) * WINDOW <= watermark:
                missing[window] += 1
        watermark = max([watermark, *(second - LATE for second in seconds)])
    return len(missing), missing.total()


@pytest.mark.parametrize("knows_times", [True, False])
@pytest.mark.parametrize("limit", [None, 100, 500, 1000])
def test_a_watermark_drops_nothing_of_a_backlog(
    stream: PlayedStream, clock: HandClock, limit: int | None, knows_times: bool
) -> None:
    stream.knows_times = knows_times
    more = {"maxRecordsPerTrigger": str(limit)} if limit else {}
    query = PlayedQuery(stream, clock, **more)

    found = list(batches(query))

    assert dropped(found) == (0, 0)
    assert len(query.delivered) == sum(map(len, stream.records_of.values()))
    if limit is None:
        assert len(found) == 1
    else:
        assert max(map(len, found)) == limit


# Any stream


class Lineage(NamedTuple):
    """Shards one after the other; the last of them is open."""

    begins: int
    lives: list[int]
    """How many seconds each of them is open."""
    gap: int
    """Seconds between two changes."""
    splits: bool
    """Each has two children, of which the second has none."""


LINEAGE = st.builds(
    Lineage,
    st.integers(0, 20 * HOUR),
    st.lists(st.integers(600, 6 * HOUR), min_size=1, max_size=5),
    st.integers(200, 5000),
    st.booleans(),
)


def play(stream: PlayedStream, lineages: Sequence[Lineage]) -> None:
    for index, each in enumerate(lineages):
        opened, parent = each.begins, None
        for life in each.lives:
            closed = min(opened + life, 25 * HOUR)
            children = range(2 if each.splits and parent else 1)
            for child in children:
                name = shard_id(opened, 10 * index + child)
                seconds = range(opened, closed, each.gap)
                numbers = [second * 1000 + 10 * index + child for second in seconds]
                stream.write(name, numbers, parent=parent)
            opened, parent = closed, shard_id(opened, 10 * index)


@given(
    lineages=st.lists(LINEAGE, min_size=1, max_size=4),
    limit=st.sampled_from([None, 1, 7, 100, 1000]),
    skew=st.sampled_from(["0s", "1m", "2h"]),
    page_size=st.sampled_from([3, 50, 1000]),
    knows_times=st.booleans(),
    empty_pages=st.sampled_from([0, 7]),
    restarts=st.booleans(),
    limits=st.sampled_from([LIMITS, SourceLimits(shard=2000, batch=5000)]),
)
def test_nothing_unread_is_older_than_the_newest_by_more_than_the_skew(
    lineages: Sequence[Lineage],
    limit: int | None,
    skew: str,
    page_size: int,
    knows_times: bool,
    empty_pages: int,
    restarts: bool,
    limits: SourceLimits,
) -> None:
    clock = HandClock()
    clock.slept = BEGAN + 25 * HOUR - clock.time()
    stream = PlayedStream(clock)
    stream.page_size, stream.knows_times = page_size, knows_times
    stream.empty_pages = empty_pages
    play(stream, lineages)
    more = {"maxRecordsPerTrigger": str(limit)} if limit else {}
    query = PlayedQuery(stream, clock, maxEventTimeSkew=skew, **more)
    query.limits = limits
    query.start()

    newest = 0
    for seconds in batches(query):
        if restarts:
            query.start()
        assert min(seconds) >= newest - query.options.max_event_time_skew
        newest = max(newest, *seconds)

    assert sorted(query.delivered) == sorted(n for each in stream.records_of.values() for n in each)
    for name, parent in stream.parents.items():
        family = [
            n
            for n in query.delivered
            if n in {*stream.records_of[name], *stream.records_of[parent]}
        ]
        assert family == sorted(family), "a parent's before its child's"


# Who waits for whom


class Two:
    """A shard that can't be read, with six hours of backlog, and one that can."""

    def __init__(self, clock: HandClock, **more: str) -> None:
        self.stream = PlayedStream(clock)
        self.stream.write("a", range(0, 6 * HOUR * 1000, 60_000))
        self.stream.write("b", range(1, 6 * HOUR * 1000, 60_000))
        self.query = PlayedQuery(self.stream, clock, **more)
        self.stream.failing = {"b"}

    def delivered(self, number: int) -> int:
        """How many there are of a shard by now."""
        return sum(each % 1000 == number for each in self.query.delivered)


@pytest.mark.parametrize("limit", [{}, {"maxRecordsPerTrigger": "50"}])
def test_who_can_t_be_read_keeps_the_others_for_so_long(
    clock: HandClock, caplog: pytest.LogCaptureFixture, limit: dict[str, str]
) -> None:
    two = Two(clock, maxEventTimeSkew="2m", **limit)

    two.query.run(110)

    assert two.delivered(0) == 0
    assert two.query.planner.report()["shards_left_behind"] == 0
    two.query.run(60)
    assert two.delivered(0) == 6 * 60
    assert two.query.planner.report()["shards_left_behind"] == 1
    said = "Shard b: no record for 120 s, so the others continue without it; a watermark may drop"
    assert sum(said in each for each in caplog.messages) == 1


def test_who_can_be_read_again_is_not_behind_once_it_has_caught_up(clock: HandClock) -> None:
    two = Two(clock)
    two.query.run(100)
    two.stream.failing = set()

    two.query.run(100)
    two.stream.write("a", [6 * HOUR * 1000])
    two.query.run(2)

    assert two.delivered(1) == 6 * 60
    assert two.query.planner.report()["shards_left_behind"] == 0


def test_who_fails_near_the_tip_keeps_nobody(clock: HandClock) -> None:
    """What it misses meanwhile is as old as that is long."""
    two = Two(clock)
    two.stream.failing = set()
    two.query.run(60)
    two.stream.failing = {"b"}
    for minute in range(360, 365):
        two.stream.write("a", [minute * 60_000])
        two.query.run(1)
        assert two.delivered(0) == minute + 1
        clock.sleep(59)
    assert two.query.planner.report()["shards_left_behind"] == 1


def test_an_idle_shard_keeps_nobody(clock: HandClock) -> None:
    stream = PlayedStream(clock)
    stream.write("a", [0])
    stream.write("idle", [1])
    query = PlayedQuery(stream, clock)
    query.run(30)

    for hour in range(1, 5):
        stream.write("a", [hour * HOUR * 1000])
        clock.sleep(HOUR)
        query.run(1.5)
        assert query.delivered[-1] == hour * HOUR * 1000


def test_a_record_stamped_in_the_future_holds_nothing_up(clock: HandClock) -> None:
    stream = PlayedStream(clock)
    stream.write("a", [24 * HOUR * 1000, 9_000 * HOUR * 1000, 9_000 * HOUR * 1000 + 1])
    stream.write("b", [24 * HOUR * 1000 + 2])
    query = PlayedQuery(stream, clock)

    query.run(10)

    assert len(query.delivered) == 4


# On Spark itself


@pytest.mark.proof
@pytest.mark.spark
def test_windows_with_a_watermark_over_a_backlog_are_those_of_a_plain_read(
    spark: Any, tmp_path: Path
) -> None:
    with Simulator(shards=4) as sim:
        sim.advance(-20 * HOUR)
        sim.enable_new_stream(shards=4)  # shards that opened before their first records
        lineages = sim.open_shards
        for half_hour in range(40):
            sim.bulk(50, keys=40)
            sim.advance(HOUR / 2)
            for index, shard in enumerate(lineages):
                if half_hour % 8 == 2 * index or (half_hour == 19 and not index):
                    [lineages[index]] = sim.rotate(shard)
        sim.advance(2)
        given = options(sim, startingPosition="trim_horizon")
        plain = windows(spark.read.format("dynamodb_streams").options(**given).load())
        expected = {row.window.start: row["count"] for row in plain.collect()}
        # Not every shard's first page is here when the first micro-batch is cut.
        sim.set_faults(latency_jitter=0.5)
        queries = {
            name: with_watermark(spark, name, tmp_path / name, {**given, **limit})
            for name, limit in {"whole": {}, "parts": {"maxRecordsPerTrigger": 400}}.items()
        }

    assert sum(expected.values()) == 2000
    for name, query in queries.items():
        found = spark.sql(f"select window.start, max(count) n from {name} group by 1").collect()
        assert {row.start: row.n for row in found} == expected
        assert not any(
            state["numRowsDroppedByWatermark"]
            for each in query.recentProgress
            for state in each["stateOperators"]
        )
        source = query.lastProgress["sources"][0]
        assert json.loads(source["latestOffset"])["shards_left_behind"] == 0


def with_watermark(spark: Any, name: str, checkpoint: Path, given: dict[str, Any]) -> Any:
    """A query that has read all there is."""
    changes = spark.readStream.format("dynamodb_streams").options(**given).load()
    late = changes.withWatermark("approximate_creation_time", "10 minutes")
    writer = windows(late).writeStream.format("memory").queryName(name).outputMode("update")
    writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    query = writer.start()
    assert query.awaitTermination(PATIENCE)
    return query


def windows(changes: Any) -> Any:
    return changes.groupBy(window("approximate_creation_time", "10 minutes")).count()
