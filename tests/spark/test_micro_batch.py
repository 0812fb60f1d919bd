"""How far a micro-batch goes, over a played stream."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from tests.spark.played import PlayedQuery, PlayedStream
from tests.support.hand_clock import HandClock
from watcher.spark.micro_batch import SourceLimits


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
