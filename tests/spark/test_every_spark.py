"""The source on whichever Spark is here; scripts/spark-versions brings the older ones."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.errors import PySparkException

from tests.simulator import Simulator
from tests.spark import every_use
from tests.spark.conftest import PATIENCE, Run, options
from tests.support.eventually import eventually
from tests.support.processes import children
from watcher.formatting.text import counted
from watcher.spark import compat, register
from watcher.stream import Stream

pytestmark = [
    pytest.mark.proof,
    pytest.mark.spark,
    # Spark 4.0's own sockets.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


class Lake:
    """A query that appends to Parquet files, ended and started again."""

    def __init__(self, spark: Any, sim: Simulator, place: Path) -> None:
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


def test_batches_and_streams_bring_every_change_once(
    spark: Any, sim: Simulator, tmp_path: Path
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
    eventually(lake.is_whole, seconds=PATIENCE)
    query.stop()
    assert max(each["numInputRows"] for each in query.recentProgress) <= 100


def test_what_a_stream_can_not_have_is_told(spark: Any, sim: Simulator, tmp_path: Path) -> None:
    """Spark hides what is raised as the reader is made (UnboundLocalError: 'reader')."""
    wrong = [
        (
            {"endingPosition": "1h", "checkpointLocation": str(tmp_path)},
            "endingPosition is for spark.read",
        )
    ]
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
    spark: Any, sim: Simulator, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sim.bulk(100, keys=20)
    jvm = spark.sparkContext._gateway.proc.pid
    others = planners(jvm)
    lake = Lake(spark, sim, tmp_path)
    query = lake.start()
    eventually(lambda: any(each["numInputRows"] for each in query.recentProgress), seconds=PATIENCE)
    (planner,) = planners(jvm) - others
    os.kill(planner, signal.SIGKILL)
    page = (Path(__file__).parents[2] / "docs/spark.md").read_text()
    (text,) = re.findall(r"```python\n([^`]+translating_errors[^`]+)```", page)
    exec(compile(text, "docs/spark.md", "exec"), {"query": query})

    (told,) = re.findall("# (Spark: one.+) …", text)
    assert capsys.readouterr().out.startswith(told)
    lake.start(once=True).awaitTermination(PATIENCE)
    assert lake.is_whole()


@pytest.fixture(params=["true", "false"], ids=["pushdown", "no pushdown"])
def pushing(spark: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    """A session whose Spark hands filters to sources that take them (4.1 and newer), or not."""
    spark.conf.set(PUSHDOWN, request.param)
    register(spark)
    yield spark
    spark.conf.unset(PUSHDOWN)
    register(spark)


def test_a_frame_that_is_used_twice_has_all_its_rows_in_each(pushing: Any, sim: Simulator) -> None:
    """Spark would apply a pushed filter to every use of the frame, also to those before it."""
    sim.bulk(120, keys=10, remove_every=5)
    sim.advance(60)
    frame = pushing.read.format("dynamodb_streams").options(**options(sim)).load()
    pulled = Stream(sim.stream_arn, "trim_horizon", endpoint_url=sim.endpoint, region="us-east-1")
    kinds = Counter(each.event_name for each in islice(filter(None, pulled), 120))
    assert len(kinds) == 3 and sum(kinds.values()) == len(sim.records)
    sim.disable_stream()  # idle open shards are waited for, in each of so many reads

    every_use.check(pushing, frame, kinds)


def test_a_frame_has_the_same_changes_each_time_and_a_new_read_has_the_newer_ones(
    spark: Any, sim: Simulator
) -> None:
    """Spark asks a source for its partitions once, however often a frame or a view is used.

    Spark 4.0 asks in each action.
    """
    reader = spark.read.format("dynamodb_streams").options(**options(sim))
    sim.bulk(120, keys=10)
    sim.advance(60)
    frame = reader.load()
    frame.createOrReplaceTempView("changes")
    assert frame.count() == 120
    sim.split()
    sim.bulk(50, keys=10)
    sim.advance(60)

    same = 170 if spark.version.startswith("4.0.") else 120
    assert frame.count() == spark.table("changes").count() == same
    assert reader.load().count() == 170


def test_a_query_over_an_archive_and_its_stream_has_each_change_once(
    sim: Simulator, tmp_path: Path, command: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to Spark 4.1 the archive is one batch; from 4.2 on it has an empty one before."""
    lake, place = str(tmp_path / "lake"), ["--endpoint-url", sim.endpoint, "--region", "us-east-1"]
    sql = "SELECT count(*), count(DISTINCT position), size(max(changed_attributes)) FROM changes"
    sim.bulk(60, keys=5)
    sim.advance(2)
    for to, start in ((lake, "trim-horizon"), (f"{lake}-from-now", "latest")):
        words = ["archive", sim.stream_arn, "--to", to, "--from", start, "--no-follow", *place]
        made, told = command(*words), f" in {counted(len([*Path(to).glob('batch=*')]), 'batch')}"
        assert made.status == 0 and made.err.splitlines()[-1].endswith(told)
    sim.bulk(40, keys=5)
    sim.advance(2)

    both = command("query", lake, sim.stream_arn, sql, "-o", "csv", *place)
    alone = command("query", lake, sql, "-o", "csv", *place)
    monkeypatch.chdir(tmp_path.parent)
    none = [command("query", each, sql) for each in (f"{lake}-from-now", tmp_path.name)]
    hidden = command("query", lake, sim.stream_arn, sql, "--redact", "v=mask", *place)
    sim.advance(25 * 3600)
    late = command("query", lake, sim.stream_arn, sql, "-o", "csv", *place)

    assert both.out.splitlines()[1].startswith("100,100,"), both.err
    assert alone.out.splitlines()[1].startswith("60,60,"), alone.err
    assert all(each.err.endswith("that python -m watcher archive wrote\n") for each in none)
    assert "is read as a path; for a table of that name, give its ARN" in none[1].err
    assert hidden.status == 2 and "an archive has what it was written with" in hidden.err
    assert "changes in between are in neither" in late.err
