"""Rows a second on Spark `local[2]`, beside the naive source; what a backlog and idling cost."""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib
import json
import os
import pickle
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader
from pyspark.sql.streaming import StreamingQueryListener
from pyspark.sql.types import StructType

from scripts.benchmarks import commands
from scripts.benchmarks.replay import ARN, RECORDS, Pages, Replay, Scenario, record
from scripts.benchmarks.results import Row
from watcher.aws.model import AfterSequence, Position
from watcher.spark import compat, offsets, session
from watcher.spark.columns import ArrowEncoder, ddl
from watcher.spark.options import parse
from watcher.spark.planner import Planner
from watcher.streams.messages import Page

RUNS = 3
_SHARDS = 4
_PAGES = 100
_MANY_PAGES = 200
_BUSY_PAGES = 40
_NAIVE_PAGES = 10
_FEW_PAGES = 4
_TIMES = 25
_IDLE_SECONDS = 10.0
_GIVE_UP_SECONDS = 600.0
_WIRE = {"imageFormat": "dynamodb-json"}
_CHANGED = {"changedAttributes": "true"}


os.environ.update(AWS_ACCESS_KEY_ID="bench", AWS_SECRET_ACCESS_KEY="bench")
os.environ.update(AWS_DEFAULT_REGION="us-east-1", AWS_EC2_METADATA_DISABLED="true")


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


@functools.cache
def _started() -> Any:
    """The one session of all parts."""
    started = session.start(master="local[2]")
    atexit.register(session.stop, started)
    # By value, since executors know nothing of these scripts.
    started.dataSource.register(_by_value(Naive))
    return started


def _by_value(kind: type[Any]) -> type[Any]:
    cloudpickle: Any = importlib.import_module("pyspark.cloudpickle")

    import scripts.benchmarks.replay
    import scripts.benchmarks.spark

    cloudpickle.register_pickle_by_value(scripts.benchmarks.spark)
    cloudpickle.register_pickle_by_value(scripts.benchmarks.replay)
    return kind


@functools.cache
def _warm(replay: Replay) -> None:
    """Let Java's compiler do what it does in a stream's first minute: in the first million rows it
    takes more than the rows themselves.
    """
    for given in (_WIRE, {}, _WIRE):
        _ours(replay, given, "noop", _MANY_PAGES)


def _ours(replay: Replay, given: dict[str, str], sink: str, pages: int) -> float:
    return _rate(replay, _source(replay, **given), sink, _SHARDS, pages)


def _naive(replay: Replay) -> float:
    options = {"endpointUrl": replay.endpoint, "pages": str(_NAIVE_PAGES)}
    frame = _started().readStream.format("naive").options(**options).load()
    return _rate(replay, frame, "noop", 1, _NAIVE_PAGES)


def _images(replay: Replay) -> Iterator[Row]:
    """Each round has the naive source and every figure, so that they meet the same weather."""
    _warm(replay)
    kinds: dict[str, tuple[dict[str, str], str, int, float | None]] = {
        "wire images, noop": (_WIRE, "noop", _MANY_PAGES, 50),
        "plain JSON images, noop": ({}, "noop", _MANY_PAGES, 35),
        "plain JSON images, Parquet": ({}, "parquet", _PAGES, None),
        "plain JSON, changedAttributes, noop": (_CHANGED, "noop", _PAGES, None),
    }
    slow: list[float] = []
    runs: dict[str, list[float]] = {figure: [] for figure in kinds}
    for _ in range(RUNS):
        slow.append(_naive(replay))
        print(f"        naive source: {slow[-1]:,.0f} rows/s", file=sys.stderr)
        for figure, (given, sink, pages, _aim) in kinds.items():
            runs[figure].append(_ours(replay, given, sink, pages))
            print(f"        {figure}: {runs[figure][-1]:,.0f} rows/s", file=sys.stderr)
    for figure, (*_, aim) in kinds.items():
        name = f"Spark, {figure}"
        yield Row(name, "rows/s", runs[figure], compared=slow, ratio_at_least=aim)


def _columns(replay: Replay) -> Iterator[Row]:
    """A page as columns, in Python alone."""
    page = Page(0, RECORDS, "", Pages(RECORDS).page(0, "next"))
    plain: list[float] = []
    for figure, given, aim in (
        ("plain JSON", {}, None),
        ("imageFormat=dynamodb-json", _WIRE, None),
        ("wireRecords", {"wireRecords": "true"}, None),
        ("plain JSON, changedAttributes", _CHANGED, 1.5),
        ("columns=keys,event_name", {"columns": "keys,event_name"}, None),
    ):
        options = parse({"stream": ARN, **given}, streaming=True)
        encoder = ArrowEncoder(options, compat.arrow_schema(_of_ddl(ddl(options))))
        runs = [_fastest(encoder, page) for _ in range(RUNS)]
        plain = plain or runs
        name = f"Spark, a page as columns, {figure}"
        beside = plain if aim else []
        yield Row(name, "ms of CPU", runs, compared=beside, ratio_at_most=aim)


def _fastest(encoder: ArrowEncoder, page: Page) -> float:
    found = []
    for _ in range(_TIMES):
        used = time.process_time()
        encoder.encode(page, "shardId-0", ARN)
        found.append(1000 * (time.process_time() - used))
    return min(found)


def _of_ddl(text: str) -> StructType:
    _started()
    return StructType.fromDDL(text)


def _by_shards(replay: Replay) -> Iterator[Row]:
    """Plain JSON, from few shards and from many."""
    _warm(replay)
    for shards, pages in ((_SHARDS, _PAGES), (64, 6), (500, 2)):
        rows = shards * pages * RECORDS
        size = len(record(0)) / 1e6
        rates, costs = [], []
        for _ in range(RUNS):
            used = commands.family_cpu_seconds(os.getpid(), replay.pid)
            rates.append(_rate(replay, _source(replay), "noop", shards, pages))
            used = commands.family_cpu_seconds(os.getpid(), replay.pid) - used
            costs.append(1e6 * used / rows)
        name = f"Spark, plain JSON, {shards} shards of {pages} pages"
        yield Row(name, "rows/s", rates)
        yield Row(f"{name}, bytes", "MB/s", [rate * size for rate in rates])
        yield Row(f"{name}, CPU of all processes", "µs/row", costs)


def _source(replay: Replay, **given: str) -> Any:
    place = {"stream": ARN, "endpointUrl": replay.endpoint, "startingPosition": "trim_horizon"}
    return _started().readStream.format("dynamodb_streams").options(**place, **given).load()


class _Counted(StreamingQueryListener):
    """Waits for so many rows; to ask for the progress again and again takes a core's tenth."""

    def __init__(self, expected: int) -> None:
        self._missing = expected
        self.done = threading.Event()
        self.ended = 0.0

    def onQueryStarted(self, event: Any) -> None:
        """Nothing to do."""

    def onQueryProgress(self, event: Any) -> None:
        """A micro-batch is committed."""
        self.ended = time.monotonic()
        self._missing -= event.progress.numInputRows
        if self._missing <= 0:
            self.done.set()

    def onQueryTerminated(self, event: Any) -> None:
        """Also where it has failed."""
        self.done.set()


def _rate(replay: Replay, frame: Any, sink: str, shards: int, pages: int) -> float:
    """Rows a second, from the first GetRecords until the last batch is committed."""
    replay.begin(Scenario(shards, pages))
    expected = shards * pages * RECORDS
    counted = _Counted(expected)
    _started().streams.addListener(counted)
    try:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
            writer = frame.writeStream.format(sink).option("checkpointLocation", f"{place}/check")
            writer = writer.option("path", f"{place}/out") if sink != "noop" else writer
            query = writer.start()
            came = counted.done.wait(_GIVE_UP_SECONDS)
            if (error := query.exception()) is not None:
                raise error
            query.stop()
    finally:
        _started().streams.removeListener(counted)
    if not came:
        raise TimeoutError("the rows did not come")
    return expected / (counted.ended - replay.begin(Scenario()).first_read)


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
    offset = planner.initial_offset()
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


def _memory(replay: Replay) -> Iterator[Row]:
    """A backlog at default settings: its size must not show in the peak of any process."""
    _warm(replay)
    first: dict[str, list[float]] = {}
    for millions in (1, 3, 10):
        with _Peaks(replay) as peaks:
            rate = _ours(replay, {}, "noop", millions * 1_000_000 // RECORDS // _SHARDS)
        name = f"Spark, a backlog of {millions} M rows"
        yield Row(name, "rows/s", [rate])
        for kind in ("Python", "the JVM"):
            found = [peaks.megabytes[kind]]
            beside = first.setdefault(kind, found)
            yield Row(
                f"{name}, peak of {kind}", "MB (PSS)", found, compared=beside, ratio_at_most=1.15
            )


class _Peaks:
    """The largest sums of memory of Spark's processes, by kind, seen twice a second."""

    def __init__(self, replay: Replay) -> None:
        self._replay = replay
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.megabytes = {"Python": 0.0, "the JVM": 0.0}

    def __enter__(self) -> _Peaks:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.5):
            now = dict.fromkeys(self.megabytes, 0.0)
            for pid in commands.family(os.getpid(), self._replay.pid):
                with contextlib.suppress(OSError):  # it has just ended
                    name = Path(f"/proc/{pid}/comm").read_text()
                    kind = "the JVM" if name.startswith("java") else "Python"
                    now[kind] += commands.proportional_memory(pid)
            self.megabytes = {kind: max(self.megabytes[kind], now[kind]) for kind in now}


def _watch(replay: Replay) -> Iterator[Row]:
    """One handler in one machine's watch, and in `--engine spark` on one core and on two.

    A handler that takes 100 µs of CPU for each record bounds them, not what brings the records.
    """
    engines: dict[str, list[str]] = {
        "one machine": [],
        "--engine spark, 1 core": ["--engine", "spark", "--master", "local[1]"],
        "--engine spark, 2 cores": ["--engine", "spark", "--master", "local[2]"],
    }
    for handler, busy, pages in (("handlers", 0, _MANY_PAGES), ("of 100 µs", 100, _BUSY_PAGES)):
        os.environ["NOTE_LAST_BUSY"] = str(busy)
        rates: dict[str, list[float]] = {name: [] for name in engines}
        for _ in range(RUNS):
            for name, words in engines.items():
                rates[name].append(_handled(replay, pages, words))
                text = f"        {handler}, {name}: {rates[name][-1]:,.0f} records/s"
                print(text, file=sys.stderr)
        for name, runs in rates.items():
            beside = [] if name == "one machine" else rates["one machine"]
            yield Row(f"{handler}, {name}", "records/s", runs, compared=beside)


def _handled(replay: Replay, pages: int, words: list[str]) -> float:
    """Records a second, from the first GetRecords until the last one is handled."""
    replay.begin(Scenario(_SHARDS, pages))
    arguments = ["--from", "trim-horizon", "--no-follow", "--note-last", *words]
    with tempfile.TemporaryDirectory() as place:
        os.environ["NOTE_LAST"] = place
        commands.run(commands.watcher(ARN, *arguments), replay.endpoint)
        last = max(float(each.read_text()) for each in Path(place).iterdir())
    return _SHARDS * pages * RECORDS / (last - replay.begin(Scenario()).first_read)


def _idle(replay: Replay) -> Iterator[Row]:
    """The planner on its own, asked as Spark asks it: again and again."""
    replay.begin(Scenario(_SHARDS))
    given = {"stream": ARN, "endpointUrl": replay.endpoint, "region": "us-east-1"}
    planner = Planner.connected(parse(given, streaming=True))
    offset = planner.initial_offset()
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


PARTS: dict[str, Callable[[Replay], Iterator[Row]]] = {
    "spark-images": _images,
    "spark-columns": _columns,
    "spark-shards": _by_shards,
    "spark-planner": _catch_up,
    "spark-idle": _idle,
    "spark-memory": _memory,
    "spark-watch": _watch,
}
