"""Sparks that do not tell where a micro-batch begins: it stands in their log of offsets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import StructType

from tests.spark.played import PlayedQuery, PlayedStream, numbers, step
from tests.support.hand_clock import HandClock
from tests.support.play import ARN
from watcher.errors import UsageError
from watcher.spark.options import parse
from watcher.spark.spark40 import Spark40Reader, stored_offset


def log(checkpoint: Path, batch: int, *ends: Any) -> None:
    """As Spark notes the end of a micro-batch, one line for each of its sources."""
    folder = checkpoint / "offsets"
    folder.mkdir(exist_ok=True)
    lines = ["v1", '{"batchWatermarkMs":0}', *map(json.dumps, ends)]
    (folder / str(batch)).write_text("\n".join(lines))


class OldQuery:
    """What Spark 4.0 does: it writes each end down, and tells none."""

    def __init__(self, stream: PlayedStream, clock: HandClock, checkpoint: Path) -> None:
        self.played = PlayedQuery(stream, clock)
        self.checkpoint = checkpoint
        self.start: dict[str, Any] = {}
        self.batches = 0
        self.delivered: list[int] = []
        self.restart()

    def restart(self) -> None:
        self.played.start()
        given = {"stream": ARN, "startingPosition": "trim_horizon", "wireRecords": "true"}
        options = parse({**given, "checkpointLocation": str(self.checkpoint)}, streaming=True)
        schema = StructType().add("shard_id", "string").add("record", "string")
        self.reader = Spark40Reader(options, schema, 2, planner=lambda _: self.played.planner)
        self.reader.clock = self.played.clock

    def poll(self) -> bool:
        end = self.reader.latestOffset()
        if json.dumps(end) == json.dumps(self.start):
            return False
        log(self.checkpoint, self.batches, end)
        self.batches += 1
        for partition in self.reader.partitions(self.start, end):
            for each in partition.ranges:  # type: ignore[attr-defined]
                pages = each.pages
                read = (
                    self.played.read(each.between) if pages is None else [p.page() for p in pages]
                )
                self.delivered += numbers(read)
        self.start = end
        return True


@pytest.fixture
def stream(clock: HandClock) -> PlayedStream:
    stream = PlayedStream(clock)
    stream.write("a", range(10))
    return stream


def test_the_first_micro_batch_waits_for_a_shard_that_is_behind(
    stream: PlayedStream, clock: HandClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream.write("a", range(1_000_000, 1_000_010))
    stream.write("b", range(100, 110))
    stream.failing = {"b"}
    query = OldQuery(stream, clock, tmp_path)
    sleep, began = clock.sleep, clock.monotonic()

    def works_again(seconds: float) -> None:
        sleep(seconds)
        step(query.played.ahead, stream)  # as a thread does meanwhile
        if clock.monotonic() > began + 20:
            stream.failing = set()

    monkeypatch.setattr(clock, "sleep", works_again)

    assert query.poll()

    assert sorted(query.delivered) == [*range(10), *range(100, 110), *range(1_000_000, 1_000_010)]


def test_after_a_restart_it_goes_on_where_the_log_ends(
    stream: PlayedStream, clock: HandClock, tmp_path: Path
) -> None:
    query = OldQuery(stream, clock, tmp_path)
    query.poll()
    stream.write("a", range(10, 25))
    query.restart()

    for _ in range(20):
        query.poll()

    assert query.delivered == [*range(25)]
    assert query.batches == 2


def test_the_first_micro_batch_is_read_again_exactly(
    stream: PlayedStream, clock: HandClock, tmp_path: Path
) -> None:
    query = OldQuery(stream, clock, tmp_path)
    query.poll()
    end, query.start = query.start, {}
    query.restart()

    (partition,) = query.reader.partitions({}, end)

    (held,) = partition.ranges  # type: ignore[attr-defined]
    assert held.pages is None
    assert numbers(query.played.read(held.between)) == [*range(10)]


def test_another_checkpoint_than_the_query_s_is_noticed(
    stream: PlayedStream, clock: HandClock, tmp_path: Path
) -> None:
    query = OldQuery(stream, clock, tmp_path)
    end = query.reader.latestOffset()

    with pytest.raises(UsageError, match="the same to readStream and writeStream"):
        query.reader.partitions({"shards": {}, "stream": ARN, "version": 3}, end)


def test_of_several_sources_the_one_of_this_stream_counts(tmp_path: Path) -> None:
    mine = {"shards": {}, "stream": ARN, "version": 3}
    assert stored_offset(str(tmp_path), ARN.__eq__) == {}
    log(tmp_path, 9, {"stream": "another"}, mine, 17)
    log(tmp_path, 8, {"stream": "another"})
    (tmp_path / "offsets" / ".10.crc").write_text("")

    assert stored_offset(str(tmp_path), ARN.__eq__) == mine
    assert stored_offset(tmp_path.as_uri() + "/", ARN.__eq__) == mine
    log(tmp_path, 10, mine, mine)
    with pytest.raises(UsageError, match="once in a query"):
        stored_offset(str(tmp_path), ARN.__eq__)


def test_what_is_no_folder_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="checkpointLocation nofs://x: can't be read"):
        stored_offset("nofs://x", ARN.__eq__)


def test_an_old_spark_asks_for_the_checkpoint() -> None:
    options = parse({"stream": ARN, "columns": "keys"}, streaming=True)
    reader = Spark40Reader(options, StructType().add("keys", "string"), 2)

    with pytest.raises(UsageError, match=r'needs .option\("checkpointLocation", …\) on readStream'):
        reader.latestOffset()
