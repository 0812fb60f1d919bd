"""Rows a second on Spark `local[2]`, beside the naive source; the cost of an idle query."""

from __future__ import annotations

import importlib
import json
import os
import pickle
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import boto3
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader
from pyspark.sql.types import StructType

from scripts.benchmarks import commands
from scripts.benchmarks.replay import ARN, RECORDS, Replay, Scenario, record
from scripts.benchmarks.results import Row
from watcher.service.model import AfterSequence, Position
from watcher.spark import offsets, session
from watcher.spark.options import parse
from watcher.spark.planner import Planner

RUNS = 3
_SHARDS = 4
_PAGES = 100
_NAIVE_PAGES = 5
_FEW_PAGES = 4
_IDLE_SECONDS = 10.0
_GIVE_UP_SECONDS = 120.0
_WIRE = {"imageFormat": "dynamodb-json"}
_SCHEMA = (
    "customer string, `order` string, status string, quantity int, total decimal(12,2), "
    "paid boolean, tags array<string>"
)


class NaiveReader(SimpleDataSourceStreamReader):
    """As one would write it in an afternoon: boto3 in the driver, a tuple per record."""

    def __init__(self, endpoint: str, pages: int) -> None:
        self._endpoint = endpoint
        self._pages = pages

    def initialOffset(self) -> dict[str, int]:
        """The first page."""
        return {"page": 0}

    def read(self, start: dict[str, int]) -> tuple[Iterator[tuple[Any, ...]], dict[str, int]]:
        """All pages at once."""
        if start["page"] >= self._pages:
            return iter(()), start
        client: Any = boto3.client("dynamodbstreams", endpoint_url=self._endpoint)
        shard = client.describe_stream(StreamArn=ARN)["StreamDescription"]["Shards"][0]["ShardId"]
        iterator = client.get_shard_iterator(
            StreamArn=ARN, ShardId=shard, ShardIteratorType="TRIM_HORIZON"
        )["ShardIterator"]
        rows: list[tuple[Any, ...]] = []
        for _ in range(self._pages):
            answer = client.get_records(ShardIterator=iterator)
            iterator = answer["NextShardIterator"]
            rows += [self._row(record) for record in answer["Records"]]
        return iter(rows), {"page": self._pages}

    @staticmethod
    def _row(record: dict[str, Any]) -> tuple[Any, ...]:
        change = record["dynamodb"]
        images = (json.dumps(change.get(name)) for name in ("Keys", "NewImage", "OldImage"))
        return (record["eventID"], record["eventName"], change["SequenceNumber"], *images)

    def readBetweenOffsets(
        self, start: dict[str, int], end: dict[str, int]
    ) -> Iterator[tuple[Any, ...]]:
        """The same again."""
        return self.read(start)[0]


class Naive(DataSource):
    """The naive source."""

    @classmethod
    def name(cls) -> str:
        """What goes into `format(…)`."""
        return "naive"

    def schema(self) -> str:
        """Six columns."""
        columns = ("event_id", "event_name", "sequence_number", "keys", "new_image", "old_image")
        return ", ".join(f"{column} string" for column in columns)

    def simpleStreamReader(self, schema: StructType) -> NaiveReader:
        """For `readStream`."""
        return NaiveReader(self.options["endpointUrl"], int(self.options["pages"]))


def spark(replay: Replay) -> Iterator[Row]:
    """All figures of Spark, on one session."""
    os.environ.update(AWS_ACCESS_KEY_ID="bench", AWS_SECRET_ACCESS_KEY="bench")
    os.environ.update(AWS_DEFAULT_REGION="us-east-1", AWS_EC2_METADATA_DISABLED="true")
    started = session.start(master="local[2]")
    # By value, since executors know nothing of these scripts.
    started.dataSource.register(_by_value(Naive))
    try:
        yield from _throughput(started, replay)
        yield from _by_shards(started, replay)
        yield from _catch_up(replay)
        yield from _idle(replay)
    finally:
        started.stop()


def _by_value(kind: type[Any]) -> type[Any]:
    cloudpickle: Any = importlib.import_module("pyspark.cloudpickle")

    import scripts.benchmarks.replay
    import scripts.benchmarks.spark

    cloudpickle.register_pickle_by_value(scripts.benchmarks.spark)
    cloudpickle.register_pickle_by_value(scripts.benchmarks.replay)
    return kind


def _throughput(started: Any, replay: Replay) -> Iterator[Row]:
    def ours(given: dict[str, str], sink: str = "noop") -> float:
        return _rate(replay, _source(started, replay, **given), sink, _SHARDS, _PAGES)

    def naive() -> float:
        options = {"endpointUrl": replay.endpoint, "pages": str(_NAIVE_PAGES)}
        frame = started.readStream.format("naive").options(**options).load()
        return _rate(replay, frame, "noop", 1, _NAIVE_PAGES)

    # A stream runs for days: Java's compiler is done with it by then.
    for _ in range(2):
        ours({})
        ours(_WIRE)
    slow = [naive() for _ in range(RUNS)]
    for figure, given, sink, aim in (
        ("wire images, noop", _WIRE, "noop", 120_000),
        ("plain JSON images, noop", {}, "noop", None),
        ("plain JSON images, Parquet", {}, "parquet", None),
        ("imageSchema of seven, noop", {"imageSchema": _SCHEMA}, "noop", None),
        ("plain JSON, changedAttributes, noop", {"changedAttributes": "true"}, "noop", None),
    ):
        runs = [ours(given, sink) for _ in range(RUNS)]
        yield Row(
            f"Spark, {figure}", "rows/s", runs, at_least=aim, compared=slow, ratio_at_least=10
        )


def _by_shards(started: Any, replay: Replay) -> Iterator[Row]:
    """The same number of rows, plain JSON, from few shards and from many."""
    for shards in (4, 64, 500):
        pages = max(_FEW_PAGES, _SHARDS * _PAGES // shards)
        rows = shards * pages * RECORDS
        size = len(record(0)) / 1e6
        rates, costs = [], []
        for _ in range(RUNS):
            used = commands.family_cpu_seconds(os.getpid(), replay.pid)
            rates.append(_rate(replay, _source(started, replay), "noop", shards, pages))
            used = commands.family_cpu_seconds(os.getpid(), replay.pid) - used
            costs.append(1e6 * used / rows)
        name = f"Spark, plain JSON, {shards} shards of {pages} pages"
        yield Row(name, "rows/s", rates)
        yield Row(f"{name}, bytes", "MB/s", [rate * size for rate in rates])
        yield Row(f"{name}, CPU of all processes", "µs/row", costs)


def _source(started: Any, replay: Replay, **given: str) -> Any:
    place = {"stream": ARN, "endpointUrl": replay.endpoint, "startingPosition": "trim_horizon"}
    return started.readStream.format("dynamodb_streams").options(**place, **given).load()


def _rate(replay: Replay, frame: Any, sink: str, shards: int, pages: int) -> float:
    """Rows a second, from the first GetRecords until the last batch is committed."""
    replay.begin(Scenario(shards, pages))
    expected = shards * pages * RECORDS
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        writer = frame.writeStream.format(sink).option("checkpointLocation", f"{place}/check")
        writer = writer.option("path", f"{place}/out") if sink != "noop" else writer
        query = writer.start()
        ended = _when(lambda: _rows(query) >= expected)
        query.stop()
    return expected / (ended - replay.begin(Scenario()).first_read)


def _rows(query: Any) -> int:
    if (error := query.exception()) is not None:
        raise error
    return sum(each["numInputRows"] for each in query.recentProgress)


def _when(condition: Callable[[], bool]) -> float:
    """The moment when it became true."""
    deadline = time.monotonic() + _GIVE_UP_SECONDS
    while time.monotonic() < deadline:
        if condition():
            return time.monotonic()
        time.sleep(0.02)
    raise TimeoutError("the rows did not come")


def _catch_up(replay: Replay) -> Iterator[Row]:
    """What a backlog costs the driver, the planner on its own: executors are not counted."""
    for shards, pages in ((4, _PAGES), (64, _PAGES), (500, _PAGES), (500, _FEW_PAGES)):
        runs = [_planned(replay, shards, pages) for _ in range(RUNS)]
        figure = f"Spark, catch-up, driver's CPU, {shards} shards of {pages} pages"
        yield Row(figure, "µs/row", runs, at_most=1.0)


def _planned(replay: Replay, shards: int, pages: int) -> float:
    """Microseconds of the driver's CPU per row of a backlog."""
    replay.begin(Scenario(shards, pages))
    given = {"stream": ARN, "endpointUrl": replay.endpoint, "region": "us-east-1"}
    given["startingPosition"] = "trim_horizon"
    planner = Planner.connected(parse(given, streaming=True))
    used = time.process_time()
    offset = planner.anchor()
    last = f"{pages - 1:08}{RECORDS - 1:04}"  # how the last record's number ends
    while not all(_is_after(each.position, last) for each in offset.shards.values()):
        end = planner.latest(offset, None)
        pickle.dumps([planner.pages(between) for between in offsets.ranges(offset, end)])
        offset = end
    used = time.process_time() - used
    planner.stop()
    return 1e6 * used / (shards * pages * RECORDS)


def _is_after(position: Position, last: str) -> bool:
    return isinstance(position, AfterSequence) and position.sequence_number.endswith(last)


def _idle(replay: Replay) -> Iterator[Row]:
    """The planner on its own, asked as Spark asks it: again and again."""
    replay.begin(Scenario(_SHARDS))
    given = {"stream": ARN, "endpointUrl": replay.endpoint, "region": "us-east-1"}
    planner = Planner.connected(parse(given, streaming=True))
    offset = planner.anchor()
    planner.latest(offset, None)
    began, used = time.monotonic(), time.process_time()
    polls = 0
    while time.monotonic() < began + _IDLE_SECONDS:
        planner.latest(offset, None)
        planner.report()
        polls += 1
    used = time.process_time() - used
    planner.stop()
    calls = replay.begin(Scenario()).calls
    listings = calls.get("DescribeStream", 0) / _IDLE_SECONDS
    yield Row("Spark, idle trigger, CPU", "ms", [1000 * used / polls], at_most=50)
    yield Row("Spark, idle, DescribeStream", "calls/s", [listings], at_most=0.5)
