"""What is read ahead of the micro-batches, a step at a time."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from hypothesis import given
from hypothesis import strategies as st

from tests.spark.played import PlayedStream, number, numbers, step
from tests.support.hand_clock import HandClock
from tests.support.play import ARN
from watcher.aws.model import AfterSequence, TrimHorizon
from watcher.spark.buffered_shard import BufferedPage
from watcher.spark.micro_batch import SourceLimits
from watcher.spark.read_ahead import ReadAhead
from watcher.streams.lineage import TrackedShard
from watcher.streams.messages import Page


@pytest.fixture
def ahead(clock: HandClock) -> ReadAhead:
    return ReadAhead(ARN, clock)


def add(ahead: ReadAhead, shard_id: str) -> None:
    ahead.add(TrackedShard(shard_id, None, TrimHorizon()), None)


def steps(ahead: ReadAhead, stream: PlayedStream) -> int:
    """How many reads are due now."""
    count = 0
    while step(ahead, stream):
        count += 1
    return count


def held(ahead: ReadAhead, shard_id: str) -> list[int]:
    return numbers(each.page() for each in ahead.shards[shard_id].pages)


def test_a_shard_that_is_full_rests_until_some_of_it_is_delivered(
    stream: PlayedStream, clock: HandClock
) -> None:
    ahead = ReadAhead(ARN, clock, limits=SourceLimits(shard=500))
    stream.write("a", range(100))
    add(ahead, "a")
    for _ in range(20):
        steps(ahead, stream)
        clock.sleep(1)
    shard = ahead.shards["a"]
    full = held(ahead, "a")
    assert 0 < len(full) < 100 and steps(ahead, stream) == 0

    assert not ahead.delivered(shard, AfterSequence(number(5))), "no page is done with yet"
    assert ahead.delivered(shard, AfterSequence(number(9)))

    assert steps(ahead, stream) == 1
    assert held(ahead, "a") == [*range(10, full[-1] + 11)]
    assert shard.bytes == sum(each.size for each in shard.pages)


def test_all_shards_rest_while_there_is_too_much_of_all(
    stream: PlayedStream, clock: HandClock
) -> None:
    ahead = ReadAhead(ARN, clock, limits=SourceLimits(batch=500))
    for name in ("a", "b", "c"):
        stream.write(name, range(50))
        add(ahead, name)
    for _ in range(20):
        steps(ahead, stream)
        clock.sleep(1)

    assert steps(ahead, stream) == 0
    ahead.delivered(ahead.shards["b"], AfterSequence(number(49)))
    assert steps(ahead, stream) > 0, "whichever it was that has made room"


def test_many_idle_shards_are_asked_less_often(
    ahead: ReadAhead, stream: PlayedStream, clock: HandClock
) -> None:
    for index in range(300):
        stream.write(f"s{index}", [])
        add(ahead, f"s{index}")
    for _ in range(40):
        steps(ahead, stream)
        clock.sleep(0.25)
    before = len(stream.reads)

    for _ in range(40):
        steps(ahead, stream)
        clock.sleep(0.25)

    assert 900 <= len(stream.reads) - before <= 1300, "each one every three seconds"


@given(st.binary(max_size=5000))
def test_a_page_comes_out_as_it_went_in(body: bytes) -> None:
    page = Page(3, 7, "12", body)

    assert BufferedPage.packed_from(page, TrimHorizon()).page() == page
