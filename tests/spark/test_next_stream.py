"""What is told where a table's stream is disabled and enabled again under a query."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import StructType

from tests.simulator import Simulator
from tests.spark.conftest import options
from watcher.errors import DataLossError, StreamError, StreamGoneError, UsageError
from watcher.spark.offsets import from_json
from watcher.spark.options import parse
from watcher.spark.planner import Planner
from watcher.spark.stream_reader import StreamReader

SCHEMA = StructType().add("shard_id", "string").add("record", "string")


class Query:
    """What Spark does with the reader, one micro-batch after the other."""

    def __init__(self, sim: Simulator, stream: str, **more: str) -> None:
        given = {**options(sim), "startingPosition": "trim_horizon", "wireRecords": "true"}
        self.options = parse(
            {**given, "columns": "shard_id,record", "stream": stream, **more}, streaming=True
        )
        self.start: dict[str, Any] = {}
        self.numbers: list[str] = []
        self.restart()

    def restart(self) -> None:
        self.reader = StreamReader(self.options, SCHEMA, 2)

    def batch(self) -> bool:
        end = self.reader.latestOffset(self.start, self.reader.getDefaultReadLimit())
        if json.dumps(end) == json.dumps(self.start):
            return False
        self.numbers += [
            json.loads(row["record"])["dynamodb"]["SequenceNumber"]
            for partition in self.reader.partitions(self.start, end)
            for batch in self.reader.read(partition)
            for row in batch.to_pylist()
        ]
        self.start = json.loads(json.dumps(end))
        return True

    def until_count(self, count: int) -> None:
        deadline = time.monotonic() + 60
        while len(self.numbers) < count and time.monotonic() < deadline:
            self.batch()
        assert len(self.numbers) >= count
        self.batch()


def written(sim: Simulator) -> list[str]:
    return [each.sequence_number for each in sim.records]


@pytest.mark.parametrize("dated", [True, False])
def test_a_stream_that_begins_anew_is_a_loss_and_is_read_from_its_first_record_on(
    sim: Simulator, dated: bool
) -> None:
    strict, query = (Query(sim, "orders", failOnDataLoss=fails) for fails in ("true", "false"))
    sim.bulk(20)
    for each in (strict, query):
        each.until_count(20)
        each.reader.stop()
    before = json.dumps(strict.start)
    sim.advance(60)
    sim.begin_anew(dated)
    sim.bulk(5)

    strict.restart()
    with pytest.raises(DataLossError, match="created again" if dated else "from scratch"):
        strict.until_count(25)
    assert json.dumps(strict.start) == before
    strict.reader.stop()

    query.restart()
    query.until_count(25)
    losses = (query.reader.reportLatestOffset() or {})["data_losses"]
    query.reader.stop()
    assert sorted(query.numbers[20:]) == sorted(written(sim)) and losses >= 1


def test_a_batch_read_ends_where_its_stream_starts_from_scratch(
    sim: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hung."""
    query = Query(sim, "orders", failOnDataLoss="false")
    sim.bulk(20)
    query.until_count(20)
    query.reader.stop()
    sim.begin_anew(dated=False)
    sim.bulk(5)
    planner = Planner.connected(query.options)
    monkeypatch.setattr(planner, "initial_offset", lambda: from_json(query.start))
    with pytest.raises(StreamError, match="read it again"):
        planner.up_to_now()
    planner.stop()


def test_a_stream_by_its_own_arn_ends_the_query_and_names_the_next_one(sim: Simulator) -> None:
    query = Query(sim, sim.stream_arn)
    sim.bulk(5)
    query.until_count(5)
    sim.disable_stream()
    for _ in range(20):
        query.batch()  # nothing has followed it yet
    second = sim.enable_new_stream(1)

    with pytest.raises(StreamGoneError, match=f"its table has a new one, {second}: name that"):
        query.until_count(6)
    query.reader.stop()


@pytest.mark.parametrize("fails", [True, False])
def test_a_stream_that_is_gone_before_it_was_read_is_a_loss(sim: Simulator, fails: bool) -> None:
    """Its last records were left unread for longer than a day."""
    query = Query(sim, "orders", failOnDataLoss=str(fails))
    sim.bulk(5)
    query.until_count(5)
    sim.bulk(5)
    query.reader.stop()
    sim.disable_stream()
    first = sim.stream_arn
    sim.advance(25 * 3600)
    second = sim.enable_new_stream(1)
    sim.bulk(5)
    query.restart()

    if fails:
        with pytest.raises(DataLossError, match=f"{first}.*failOnDataLoss=false"):
            query.until_count(10)
    else:
        query.until_count(10)
        assert query.start["stream"] == second
        assert query.numbers[5:] == written(sim)[10:]
    query.reader.stop()


def test_a_checkpoint_of_another_table_is_refused(sim: Simulator) -> None:
    sim.add_table("other")
    query = Query(sim, "orders")
    query.batch()
    query.reader.stop()
    start, query = query.start, Query(sim, "other")
    query.start = start

    with pytest.raises(UsageError, match=r"the checkpoint belongs to .*table/orders/"):
        query.batch()
