"""The source on whichever Spark is here; scripts/spark-versions brings the older ones."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

import pyspark.sql.datasource
from pyspark.errors import PySparkException
from pyspark.sql.streaming.readwriter import DataStreamReader

from tests.chaos import children
from tests.simulator import RemoteSimulator, Simulator
from tests.spark import every_use
from tests.spark.conftest import PATIENCE, options
from watcher.spark import compat, register

pytestmark = [
    pytest.mark.spark,
    # Spark 4.0's own sockets.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


class Lake:
    """A query that appends to Parquet files, ended and started again."""

    def __init__(self, spark: Any, sim: RemoteSimulator, place: Path) -> None:
        self._spark = spark
        self._sim = sim
        self._to = str(place / "lake")
        self._checkpoint = str(place / "checkpoint")

    def start(self, *, once: bool = False, **more: Any) -> Any:
        given = options(self._sim, startingPosition="trim_horizon", **more)
        # Newer Sparks need it here as little as they mind it.
        given["checkpointLocation"] = self._checkpoint
        frame = self._spark.readStream.format("dynamodb_streams").options(**given).load()
        writer = frame.writeStream.format("parquet").option("path", self._to)
        writer = writer.option("checkpointLocation", self._checkpoint)
        return (writer.trigger(availableNow=True) if once else writer).start()

    def numbers(self) -> list[str]:
        rows = self._spark.read.parquet(self._to).select("sequence_number").collect()
        return sorted(row[0] for row in rows)

    def is_whole(self) -> bool:
        return self.numbers() == sorted(each.sequence_number for each in self._sim.records)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"not in {PATIENCE:.0f} s"
        time.sleep(0.2)


def test_batches_and_streams_bring_every_change_once(
    spark: Any, sim: RemoteSimulator, tmp_path: Path
) -> None:
    sim.bulk(1500, keys=20)
    sim.split()
    sim.bulk(1500, keys=20)
    sim.advance(60)
    frame = spark.read.format("dynamodb_streams").options(**options(sim)).load()
    assert frame.select("sequence_number").distinct().count() == 3000

    lake = Lake(spark, sim, tmp_path)
    # Up to 4.1 it ends after one micro-batch, else when all up to now is read.
    for _ in range(1 if compat.HAS_ADMISSION_CONTROL else 4):
        lake.start(once=True).awaitTermination()
    assert lake.is_whole()

    sim.rotate("all")
    sim.bulk(300, keys=20)
    query = lake.start(maxRecordsPerTrigger="100")
    until(lake.is_whole)
    query.stop()
    assert max(each["numInputRows"] for each in query.recentProgress) <= 100


def test_what_a_stream_can_not_have_is_told(
    spark: Any, sim: RemoteSimulator, tmp_path: Path
) -> None:
    """Spark hides what is raised as the reader is made (UnboundLocalError: 'reader')."""
    wrong = [({"endingPosition": "1h", "checkpointLocation": str(tmp_path)}, "a stream has no end")]
    if not compat.HAS_ADMISSION_CONTROL:
        wrong.append(({}, r'needs .option\("checkpointLocation", …\) on readStream'))
    for number, (given, text) in enumerate(wrong):
        frame = spark.readStream.format("dynamodb_streams").options(**options(sim, **given)).load()
        writer = frame.writeStream.format("noop").option(
            "checkpointLocation", f"{tmp_path}/{number}"
        )
        with pytest.raises(PySparkException, match=text):
            writer.trigger(availableNow=True).start().awaitTermination()


def planners(parent: int) -> set[int]:
    """The processes below another one that plan for a query."""
    found = set[int]()
    for pid in children(parent):
        with contextlib.suppress(OSError):
            if b"python_streaming_source_runner" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.add(pid)
            found |= planners(pid)
    return found


def test_a_planner_that_is_killed_is_the_cause_as_the_docs_have_it(
    spark: Any, sim: RemoteSimulator, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sim.bulk(100, keys=20)
    jvm = spark.sparkContext._gateway.proc.pid
    others = planners(jvm)
    lake = Lake(spark, sim, tmp_path)
    query = lake.start()
    until(lambda: any(each["numInputRows"] for each in query.recentProgress))
    (planner,) = planners(jvm) - others
    os.kill(planner, signal.SIGKILL)
    page = (Path(__file__).parents[2] / "docs/spark.md").read_text()
    (text,) = re.findall(r"```python\n([^`]+translating_errors[^`]+)```", page)
    exec(compile(text, "docs/spark.md", "exec"), {"query": query})

    (told,) = re.findall("# (Spark: one.+) …", text)
    assert capsys.readouterr().out.startswith(told)
    lake.start(once=True).awaitTermination(PATIENCE)
    assert lake.is_whole()


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    """What the page's examples define."""
    whole = (Path(__file__).parents[2] / "docs/spark.md").read_text()
    section = whole.partition("### Types from a sample")[2].partition("### Progress")[0]
    names: dict[str, Any] = {"__name__": __name__}
    for text in re.findall(r"^```python\n(.*?)^```", section, re.DOTALL | re.MULTILINE):
        exec(text, names)
    return names


def test_inferred_types_grow_from_one_start_to_the_next(
    spark: Any, sim: RemoteSimulator, tmp_path: Path, page: dict[str, Any]
) -> None:
    place = tmp_path / "rows"

    def run() -> list[Any]:
        checkpoint = str(tmp_path / "checkpoint")
        given = options(sim, startingPosition="trim_horizon", checkpointLocation=checkpoint)
        reader = spark.readStream.format("dynamodb_streams").options(**given)
        rows = page["typed"](reader, str(tmp_path / "schema"))
        writer = rows.writeStream.foreachBatch(
            lambda batch, number: batch.write.mode("overwrite").parquet(f"{place}/batch={number}")
        ).option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(PATIENCE)
        return list(spark.read.option("mergeSchema", "true").parquet(str(place)).collect())

    sim.put({"pk": {"S": "a"}, "qty": {"N": "1.5"}, "placed": {"S": "2026-11-24T06:00:00Z"}})
    sim.put({"pk": {"S": "b"}, "at": {"M": {"city": {"S": "Bonn"}}}})
    first = {row.pk: row for row in run()}
    sim.put({"pk": {"S": "c"}, "qty": {"S": "many"}, "at": {"M": {"zip": {"S": "5"}}}})
    sim.put({"pk": {"S": "d"}, "paid": {"BOOL": True}})
    second = {row.pk: row for row in run()}

    assert first["a"].qty == Decimal("1.5") and first["b"]["at"].city == "Bonn"
    assert first["a"].placed == datetime(2026, 11, 24, 6, tzinfo=UTC).replace(tzinfo=None)
    assert "paid" not in first["a"]
    assert second.keys() == {"a", "b", "c", "d"}
    assert second["d"].paid is True and second["a"].paid is None
    assert second["c"]["at"].asDict() == {"city": None, "zip": "5"}
    assert json.loads(second["c"]._rescued_data) == {"new_image": {"qty": {"S": "many"}}}
    assert all(row.ingest_time is not None for row in second.values())


def test_inferred_types_of_a_batch(spark: Any, sim: RemoteSimulator, tmp_path: Path) -> None:
    sim.put({"pk": {"S": "a"}, "tags": {"SS": ["x"]}})

    def batch(**more: Any) -> Any:
        given = options(sim, inferSchema=True, **more)
        return spark.read.format("dynamodb_streams").options(**given).load()

    row = batch(columns="keys,new_image").collect()[0]
    keys = batch(columns="keys").collect()

    assert row.new_image.asDict() == {"pk": "a", "tags": ["x"]}
    assert keys[0].asDict() == {"keys": row["keys"]}
    with pytest.raises(PySparkException, match="give schemaLocation, a folder that keeps them"):
        given = options(sim, inferSchema=True, checkpointLocation=str(tmp_path))
        frame = spark.readStream.format("dynamodb_streams").options(**given).load()
        writer = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
        writer.trigger(availableNow=True).start().awaitTermination(PATIENCE)


@pytest.mark.skipif(not hasattr(DataStreamReader, "name"), reason="sources have no names yet")
def test_named_sources_may_change_places(
    spark: Any, sim: RemoteSimulator, tmp_path: Path, page: dict[str, Any]
) -> None:
    def run(*, swapped: bool) -> list[str]:
        readers = {
            name: spark.readStream.format("dynamodb_streams").options(
                **options(simulator, startingPosition="trim_horizon")
            )
            for name, simulator in (("first", sim), ("second", other))
        }
        rows = page["united"](**readers)
        if swapped:
            returns = readers["second"].name("returns").load()
            rows = returns.union(readers["first"].name("orders").load())
        writer = rows.writeStream.format("parquet").option("path", str(tmp_path / "rows"))
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        assert writer.trigger(availableNow=True).start().awaitTermination(PATIENCE)
        found = spark.read.parquet(str(tmp_path / "rows"))
        return sorted(row[0] + row[1] for row in found.select("shard_id", "event_id").collect())

    settings = {
        "spark.sql.streaming.queryEvolution.enableSourceEvolution": "true",
        "spark.sql.streaming.offsetLog.formatVersion": "2",  # 4.2 keeps offsets by their order in 1
    }
    with Simulator.spawn(shards=1, table="returns") as other:
        for name, value in settings.items():
            spark.conf.set(name, value)
        try:
            for each, swapped in ((sim, False), (other, True), (sim, False)):
                each.bulk(40, keys=5)
                each.split()
                found = run(swapped=swapped)
                sim.bulk(10, keys=5)
            found = run(swapped=True)
        finally:
            for name in settings:
                spark.conf.unset(name)
        expected = [each for source in (sim, other) for each in source.records]
    assert len(found) == len(expected) == len(set(found))


@pytest.fixture(params=["true", "false"], ids=["pushdown", "no pushdown"])
def pushing(spark: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    """A session whose Spark hands filters to sources that take them (4.1 and newer), or not."""
    spark.conf.set(PUSHDOWN, request.param)
    register(spark)
    yield spark
    spark.conf.unset(PUSHDOWN)
    register(spark)


def test_a_frame_that_is_used_twice_has_all_its_rows_in_each(
    pushing: Any, sim: RemoteSimulator
) -> None:
    """Spark would apply a pushed filter to every use of the frame, also to those before it."""
    sim.bulk(120, keys=10, remove_every=5)
    sim.advance(60)
    frame = pushing.read.format("dynamodb_streams").options(**options(sim)).load()
    kinds = every_use.kinds_by_plain_loop(sim.client(), sim.stream_arn)
    assert len(kinds) == 3 and sum(kinds.values()) == len(sim.records)
    sim.disable_stream()  # idle open shards are waited for, in each of so many reads

    every_use.check(pushing, frame, kinds)


@pytest.mark.skipif(
    not hasattr(pyspark.sql.datasource, "Filter"), reason="4.0 hands no filters to Python sources"
)
@pytest.mark.parametrize("pushing", ["true"], indirect=True)
def test_the_bug_that_is_reported_to_spark_is_still_there(
    pushing: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Once it is gone, sources can take filters: docs/spark.md is then to say since which Spark."""
    page = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()
    (text,) = (
        each
        for each in re.findall(r"```python\n(.*?)```", page, re.DOTALL)
        if 'format("numbers")' in each
    )
    exec(compile(text, "docs/spark.md", "exec"), {"__name__": "__main__"})

    printed = re.findall(r"print\(.+  # (\d+)", text)
    assert capsys.readouterr().out.split() == printed == ["10", "3", "3", "4"]


@pytest.mark.skipif(
    tuple(map(int, pyspark.__version__.split(".")[:2])) < (4, 3), reason="the page is about 4.3"
)
@pytest.mark.parametrize("pushing", ["true"], indirect=True)
def test_spark_still_lacks_what_docs_ask_its_maintainers_for(
    pushing: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Once it has something of that, the source can have it, too, and the page loses a section."""
    page = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, Any] = {"__name__": "__main__"}
    for text in (each for each in blocks if "letters" in each):
        exec(compile(text, "docs/spark.md", "exec"), names)

    printed = capsys.readouterr().out
    assert printed.startswith("10\n") and printed.rstrip().endswith("True")
    assert re.search(r"MicroBatchScan\[n#\d+, letter#\d+\] \(Python\)", printed)


@pytest.mark.skipif(
    not compat.HAS_ADMISSION_CONTROL, reason="older Sparks read one stream in a read"
)
def test_several_tables_are_one_read(spark: Any, sim: RemoteSimulator, tmp_path: Path) -> None:
    sim.bulk(50, keys=5)
    other = sim.add_table("shop-b")
    sim.advance(60)
    assert other is not None
    given = options(sim, columns="table_name,sequence_number", startingPosition="trim_horizon")
    given["stream"] = "orders,shop-*"
    frame = spark.read.format("dynamodb_streams").options(**given).load()
    assert frame.columns == ["table_name", "sequence_number"]
    assert frame.groupBy("table_name").count().collect() == [("orders", 50)]

    stream = spark.readStream.format("dynamodb_streams").options(**given).load()
    query = stream.writeStream.format("memory").queryName("several").trigger(availableNow=True)
    query.start().awaitTermination()

    assert spark.sql("SELECT table_name, count(*) FROM several GROUP BY 1").collect() == [
        ("orders", 50)
    ]


def test_each_action_on_a_frame_lists_the_stream_anew(spark: Any, sim: RemoteSimulator) -> None:
    """Spark asks a source for its partitions once, however often a frame or a view is used."""
    sim.bulk(120, keys=10)
    sim.advance(60)
    frame = spark.read.format("dynamodb_streams").options(**options(sim)).load()
    frame.createOrReplaceTempView("changes")
    assert frame.count() == 120

    sim.bulk(30, keys=10)
    sim.advance(60)
    assert frame.count() == 150, "in the shards that were there"
    sim.split()
    sim.rotate("all")
    sim.bulk(50, keys=10)
    sim.rotate("all")
    sim.bulk(50, keys=10)
    sim.advance(60)

    written = sorted(each.sequence_number for each in sim.records)
    for again in (frame, spark.table("changes"), spark.sql("SELECT * FROM changes")):
        assert sorted(row.sequence_number for row in again.collect()) == written
