"""How far a micro-batch goes, over a played stream."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from tests.spark.played import PlayedQuery, PlayedStream
from tests.support.hand_clock import HandClock
from tests.support.times import NOON
from watcher.aws.model import AtTime, TrimHorizon
from watcher.spark import micro_batch
from watcher.spark.buffered_shard import BufferedShard
from watcher.spark.micro_batch import SourceLimits
from watcher.spark.offsets import Offset, ShardOffset
from watcher.streams.lineage import Lineage, ShardStatus, TrackedShard


def test_a_limit_above_a_page_is_filled_from_a_backlog(
    stream: PlayedStream, clock: HandClock
) -> None:
    stream.write("a", range(75))
    query = PlayedQuery(stream, clock, maxRecordsPerTrigger="30")
    query.run(30)

    assert query.delivered == [*range(75)]
    assert [each for each in query.sizes if each] == [30, 30, 15]


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


def test_a_parent_that_was_listed_late_keeps_its_place_until_it_is_delivered() -> None:
    """Executors read it, so it counts as finished before its turn has come."""
    start = AtTime(NOON)
    line = [
        TrackedShard("a", None, start, ShardStatus.FINISHED),
        TrackedShard("b", "a", start, ShardStatus.FINISHED),
        TrackedShard("c", "b", start),
    ]
    before = Offset(
        "arn",
        {
            "a": ShardOffset(start),
            "b": ShardOffset(start, unlisted=True),
            "c": ShardOffset(start, "b"),
        },
    )
    held = {shard.id: BufferedShard(shard, None) for shard in line[:2]}
    end = micro_batch.end_offset(before, None, held, Lineage(TrimHorizon(), line))
    assert end is not None
    assert end.shards["a"].finished and "b" in end.shards
