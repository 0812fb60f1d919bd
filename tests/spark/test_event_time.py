"""Windows of event time over shards that rotate: a watermark drops nothing of a backlog."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pytest

pytest.importorskip("pyspark")

from hypothesis import given
from hypothesis import strategies as st

from tests.spark.played import PlayedQuery, PlayedStream
from tests.support.hand_clock import HandClock
from tests.support.wire import created
from watcher.spark.micro_batch import LIMITS, SourceLimits

HOUR = 3600
BEGAN = created(0)


@pytest.fixture
def clock() -> HandClock:
    """A day after the first record."""
    return a_day_on()


def a_day_on() -> HandClock:
    clock = HandClock()
    clock.slept = BEGAN + 25 * HOUR - clock.time()
    return clock


def shard_id(opened: float, lineage: int) -> str:
    return f"shardId-{int((BEGAN + opened) * 1000):020}-{lineage}"


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


class Lineage(NamedTuple):
    """Shards one after the other; the last of them is open."""

    begins: int
    lives: list[int]  # how many seconds each of them is open
    gap: int  # seconds between two changes
    splits: bool  # each has two children, of which the second has none


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
    clock = a_day_on()
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


def test_a_record_stamped_in_the_future_holds_nothing_up(clock: HandClock) -> None:
    stream = PlayedStream(clock)
    stream.write("a", [24 * HOUR * 1000, 9_000 * HOUR * 1000, 9_000 * HOUR * 1000 + 1])
    stream.write("b", [24 * HOUR * 1000 + 2])
    query = PlayedQuery(stream, clock)

    query.run(10)

    assert len(query.delivered) == 4
