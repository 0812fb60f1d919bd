"""Several streams in one read: each is read as one on its own is."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import StructType

from tests.simulator import RemoteSimulator, Simulator
from tests.spark.conftest import Run, options
from watcher.errors import StreamError, StreamGoneError, UsageError
from watcher.spark import compat
from watcher.spark.batch_reader import BatchReader
from watcher.spark.columns import ddl
from watcher.spark.compat import ReadMaxRows
from watcher.spark.options import parse
from watcher.spark.several_streams import SeveralStreamsReader, offsets_by_stream
from watcher.spark.source import DynamoDBStreams
from watcher.spark.stream_reader import StreamReader

SCHEMA = StructType()
for column in ("shard_id", "record", "event_source_arn", "table_name"):
    SCHEMA.add(column, "string")


@pytest.fixture
def sim() -> Iterator[Simulator]:
    with Simulator(shards=2) as simulator:
        for name in ("shop-a", "shop-b"):
            simulator.add_table(name)
        yield simulator


def write(sim: Simulator, table: str, count: int) -> None:
    tables = sim.client("dynamodb")
    for number in range(count):
        tables.put_item(TableName=table, Item={"pk": {"S": "k"}, "n": {"N": str(number)}})


class SeveralQuery:
    """What Spark does with the reader, one micro-batch after the other."""

    def __init__(self, sim: Simulator, stream: str, **more: Any) -> None:
        given = {**options(sim), "startingPosition": "trim_horizon", "wireRecords": "true"}
        self.options = parse({**given, "stream": stream, **more}, streaming=True)
        self.start: dict[str, Any] = {}
        self.rows: Counter[str] = Counter()
        self.numbers: list[str] = []
        self.sizes: list[int] = []
        self.restart()

    def restart(self) -> None:
        self.reader = SeveralStreamsReader(self.options, lambda each: StreamReader(each, SCHEMA, 2))

    def batch(self) -> bool:
        end = self.reader.latestOffset(self.start, self.reader.getDefaultReadLimit())
        if json.dumps(end) == json.dumps(self.start):
            return False
        before = len(self.numbers)
        for partition in self.reader.partitions(self.start, end):
            for batch in self.reader.read(partition):
                for row in batch.to_pylist():
                    self.rows[row["table_name"]] += 1
                    self.numbers.append(json.loads(row["record"])["dynamodb"]["SequenceNumber"])
        self.sizes.append(len(self.numbers) - before)
        self.start = json.loads(json.dumps(end))
        return True

    def until(self, count: int) -> None:
        deadline = time.monotonic() + 60
        while len(self.numbers) < count and time.monotonic() < deadline:
            self.batch()
        self.reader.stop()


def test_every_row_names_its_table_and_comes_once(sim: Simulator) -> None:
    sim.write("a", 30)
    write(sim, "shop-a", 20)
    write(sim, "shop-b", 10)
    query = SeveralQuery(sim, "orders, shop-*")

    query.until(60)

    assert query.rows == {"orders": 30, "shop-a": 20, "shop-b": 10}
    assert len(set(query.numbers)) == 60


def test_after_a_restart_each_goes_on_and_one_that_came_is_read_from_its_first_change(
    sim: Simulator,
) -> None:
    write(sim, "shop-a", 20)
    sim.advance(1200)
    query = SeveralQuery(sim, "shop-*", startingPosition="latest")
    query.batch()
    write(sim, "shop-a", 5)
    query.until(5)
    sim.add_table("shop-c")
    write(sim, "shop-c", 7)
    write(sim, "shop-b", 3)

    query.restart()
    query.until(15)

    assert query.rows == {"shop-a": 5, "shop-b": 3, "shop-c": 7}


@pytest.mark.parametrize("fails", [True, False])
def test_one_that_is_named_no_more_is_refused_or_dropped(
    sim: Simulator, caplog: pytest.LogCaptureFixture, fails: bool
) -> None:
    query = SeveralQuery(sim, "orders,shop-a", failOnDataLoss=str(fails))
    query.batch()
    for stream in ("shop-*,orders", "shop-b,shop-a,orders", "orders,shop-b"):
        query.reader.stop()
        query.options = msgspec.structs.replace(query.options, stream=stream)
        query.restart()
        if fails and stream == "orders,shop-b":
            with pytest.raises(UsageError, match="reads shop-a, which stream does not name"):
                query.batch()
            return
        assert caplog.messages == []
        query.batch()
    query.reader.stop()

    assert caplog.messages == [
        "the checkpoint reads shop-a, which stream does not name; the others continue"
    ]
    assert [name.split("/")[1] for name in offsets_by_stream(query.start)] == ["orders", "shop-b"]


def test_a_limit_is_for_all_of_them(sim: Simulator) -> None:
    sim.write("a", 30)
    write(sim, "shop-a", 30)
    query = SeveralQuery(sim, "orders,shop-a", maxRecordsPerTrigger="10")
    assert query.reader.getDefaultReadLimit().max_rows == ReadMaxRows(10).max_rows  # type: ignore[attr-defined]

    query.until(60)

    assert query.rows == {"orders": 30, "shop-a": 30}
    assert max(query.sizes) <= 10


def test_one_that_is_deleted_leaves_the_others(
    sim: Simulator, caplog: pytest.LogCaptureFixture
) -> None:
    write(sim, "shop-a", 5)
    query = SeveralQuery(sim, "orders,shop-a")
    query.batch()
    sim.delete_stream()
    deadline = time.monotonic() + 60
    while "the others continue" not in caplog.text and time.monotonic() < deadline:
        query.batch()

    query.until(5)

    assert query.rows == {"shop-a": 5}
    assert [name.split("/")[1] for name in offsets_by_stream(query.start)] == ["shop-a"]


@pytest.mark.parametrize("fails", [False, True])
def test_one_that_was_deleted_meanwhile_is_told(sim: Simulator, fails: bool) -> None:
    """What was not read of it is lost: that ends the query, unless it is not to."""
    write(sim, "shop-a", 5)
    query = SeveralQuery(sim, "orders,shop-a", failOnDataLoss=str(fails))
    query.until(5)
    sim.write("a", 3)
    sim.delete_stream()
    query.options = msgspec.structs.replace(query.options, stream="*")
    query.restart()
    query.reader.prepareForTriggerAvailableNow()

    if fails:
        with pytest.raises(StreamGoneError):
            query.batch()
    else:
        query.batch()
        assert [name.split("/")[1] for name in offsets_by_stream(query.start)] == [
            "shop-a",
            "shop-b",
        ]
    query.reader.stop()


def test_available_now_ends_for_all(sim: Simulator) -> None:
    sim.write("a", 30)
    write(sim, "shop-a", 20)
    query = SeveralQuery(sim, "orders,shop-a")
    query.reader.prepareForTriggerAvailableNow()

    while query.batch():
        pass

    query.reader.stop()
    assert query.rows == {"orders": 30, "shop-a": 20}
    report = query.reader.reportLatestOffset()
    assert report and report["shards_open"] == 3, "of both"


def test_a_batch_takes_several_too(sim: Simulator) -> None:
    sim.write("a", 30)
    write(sim, "shop-b", 10)
    sim.advance(60)
    given = {**options(sim), "wireRecords": "true", "stream": "orders,shop-b"}
    reader = BatchReader(parse(given, streaming=False), SCHEMA)

    rows = [
        row["table_name"]
        for partition in reader.partitions()
        for batch in reader.read(partition)
        for row in batch.to_pylist()
    ]

    assert Counter(rows) == {"orders": 30, "shop-b": 10}


def test_a_checkpoint_of_one_stream_goes_on_with_more() -> None:
    one = {"shards": {}, "stream": "arn", "version": 1}

    assert offsets_by_stream(one) == {"arn": one}
    with pytest.raises(UsageError, match="not of dynamodb_streams"):
        offsets_by_stream({"offset": 1})


def test_what_matches_nothing_is_said(sim: Simulator) -> None:
    with pytest.raises(StreamError, match="no table with a stream matches 'zzz-\\*'"):
        SeveralQuery(sim, "zzz-*").batch()


def test_only_several_have_the_column(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "table_name" not in ddl(parse({"stream": "orders"}, streaming=True))
    assert ddl(parse({"stream": "shop-*"}, streaming=True)).endswith("table_name string")
    monkeypatch.setattr(compat, "HAS_ADMISSION_CONTROL", False)
    refused = DynamoDBStreams({"stream": "one,two"}).streamReader(StructType())
    with pytest.raises(UsageError, match="union them"):
        refused.initialOffset()


# On the command line, as in a watch


@pytest.fixture
def shop() -> Iterator[RemoteSimulator]:
    """Changes of three tables: 30, 10 and 5."""
    with Simulator.spawn() as simulator:
        tables = simulator.client("dynamodb")
        for name, count in (("shop-a", 10), ("shop-b", 5)):
            simulator.add_table(name)
            for number in range(count):
                tables.put_item(TableName=name, Item={"pk": {"S": f"k{number}"}})
        simulator.bulk(30)
        simulator.advance(2)
        yield simulator


def named(shop: RemoteSimulator, *more: str) -> list[str]:
    place = ["--endpoint-url", shop.endpoint, "--region", "us-east-1"]
    return ["orders", "shop-*", *more, *place]


@pytest.mark.spark
def test_handlers_on_spark_get_the_records_of_several_tables(
    command: Run, shop: RemoteSimulator
) -> None:
    options = ["--engine", "spark", "--from", "trim-horizon", "--no-follow"]

    done = command(*named(shop), *options, "-pj", "-ps")

    lines = [line for line in done.out.splitlines() if not line.startswith("{")]
    wire = [json.loads(line) for line in done.out.splitlines() if line.startswith("{")]
    assert Counter(line.split()[0] for line in lines) == {"orders": 30, "shop-a": 10, "shop-b": 5}
    arns = Counter(each["eventSourceARN"].split("/")[1] for each in wire)
    assert arns == {"orders": 30, "shop-a": 10, "shop-b": 5}
    assert done.status == 0 and "Done: 45 changes" in done.err


@pytest.mark.spark
def test_query_and_archive_take_several_tables(
    command: Run, shop: RemoteSimulator, tmp_path: Path
) -> None:
    sql = "SELECT table_name, count(*) FROM changes GROUP BY 1 ORDER BY 1"
    folder = str(tmp_path / "lake")

    asked = command("query", *named(shop, sql), "-o", "csv")
    archived = command("archive", *named(shop), "--to", folder, "--once")
    read = command("count", folder, "--by", "table", "-o", "json")

    assert asked.out.splitlines()[1:] == ["orders,30", "shop-a,10", "shop-b,5"]
    assert archived.status == 0 and "Done: 45 changes" in archived.err
    assert read.status == 0, read.err


_TO = ("--to", "x", "--checkpoint", "y")


@pytest.mark.spark
@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["query", "orders", "users", "count"], "'count' is not SQL: give the SQL last, in quotes"),
        (["--engine", "spark", "--no-follow"], "give a stream: its ARN, a table, a glob like"),
        (["--all", "--engine", "spark"], "--all: not for --engine spark: name the tables, or"),
        (
            ["replicate", "orders", "users", *_TO],
            "one word too many: users; it is about one STREAM",
        ),
        (["replicate", "shop-*", *_TO], "'shop-*' may be several tables, and one is meant"),
    ],
)
def test_what_cannot_be_several_is_refused_in_one_line(
    command: Run, words: list[str], text: str
) -> None:
    done = command(*words)

    assert done.status in (2, 3)
    assert done.err.splitlines()[-1].startswith(f"error: {text}")
