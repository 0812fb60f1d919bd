"""From changes in a stream to the rows of a large table: a backlog, and a small micro-batch.

The program of its own that it starts has the Spark that Delta or Iceberg has a release for.
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake

from scripts.benchmarks.replay import Replay
from scripts.benchmarks.results import Row
from tests.simulator import Simulator
from tests.support.lakes import Lake, session_of
from watcher.aws.arns import table_of
from watcher.aws.client import StreamsClient
from watcher.aws.config import AwsConfig
from watcher.mirror.job import MirrorJob
from watcher.mirror.table import MirrorTable
from watcher.mirror.versions import MirrorForm
from watcher.time_machine.table import open_table

# The rows of the table, and the changes of a run; the environment may have smaller ones.
ROWS = int(os.environ.get("LAKE_ROWS", "1000000"))
BACKLOG = int(os.environ.get("LAKE_CHANGES", "100000"))
SMALL = 100
# The most seconds.
_AIMS = {BACKLOG: 8.0, SMALL: 3.0}
_RUNS = 3
_COPIES = ROWS // BACKLOG
Measured = tuple[int, float]
"""A number of changes, and the seconds until they were in the table."""


def lake(_: Replay) -> Iterator[Row]:
    """By delta-rs, and by Spark's MERGE into Delta and into Iceberg."""
    for engine in ("delta-rs", "delta", "iceberg"):
        with tempfile.TemporaryDirectory(prefix="lake-") as name:
            if engine == "delta-rs":
                found = [*_by_delta_rs(f"{name}/orders")]
            else:
                target = Lake(engine, Path(name))
                # Without the tests' own options of a JVM, which are for one that lives for seconds.
                words = ["scripts.benchmarks.lake", *target.words]
                out = target.output(*words, SPARK_SUBMIT_OPTS="")
                found = [json.loads(line) for line in out.splitlines() if line.startswith("[")]
        for count, at_most in _AIMS.items():
            runs = [seconds for changes, seconds in found if changes == count]
            yield Row(f"{engine}: {count:,} changes into {ROWS:,} rows", "s", runs, at_most=at_most)


def _by_delta_rs(to: str) -> Iterator[Measured]:
    """A commit has at most 20,000 changes."""

    def job(*, once: bool = False) -> MirrorJob:
        return MirrorJob(
            arn=sim.stream_arn,
            service=StreamsClient(connection),
            table=table,
            mirror=MirrorTable(to),
            form=MirrorForm.of(sim.stream_arn, table.description.types),
            once=once,
        )

    with _orders() as sim:
        connection = AwsConfig("us-east-1", None, sim.endpoint)
        table = open_table(table_of(sim.stream_arn), connection)
        job(once=True).run(1.0, lambda: False)
        rows = DeltaTable(to).to_pyarrow_table()
        parts = []
        for number in range(_COPIES):
            end = f"-{number}" if number else ""
            keys = pc.binary_join_element_wise(rows["pk"], end, "")
            parts.append(rows.set_column(rows.column_names.index("pk"), "pk", keys))
        order = numpy.random.default_rng(1).permutation(len(rows) * _COPIES)
        write_deltalake(to, pa.concat_tables(parts).take(order), mode="overwrite")
        for count in _in_turn(sim):
            began = time.monotonic()
            _apply(job(), count)
            yield count, time.monotonic() - began


def _apply(mirror: MirrorJob, count: int) -> None:
    mirror.run(1.0, lambda: mirror.changes >= count)


def _orders() -> Simulator:
    """A table of so many items as a backlog changes."""
    sim = Simulator(table="orders", shards=2)
    os.environ.update(sim.environment)
    sim.bulk(BACKLOG, keys=BACKLOG)
    return sim


def _in_turn(sim: Simulator) -> Iterator[int]:
    """Makes each run's changes, and yields how many: the backlogs first."""
    for count in (*[BACKLOG] * _RUNS, *[SMALL] * _RUNS):
        begin = random.randrange(BACKLOG)
        sim.bulk(count, keys=BACKLOG, begin=begin)
        yield count


def _by_spark(words: list[str]) -> Iterator[Measured]:
    """The query starts anew for each backlog; of what is small, the last micro-batch counts."""
    from pyspark.sql.functions import lit

    from watcher.spark import session
    from watcher.spark.merge import merge_into

    kind, to = (words[words.index(name) + 1] for name in ("--format", "--to"))
    with _orders() as sim:
        spark = session_of(words)
        connection = AwsConfig("us-east-1", None, sim.endpoint)
        # Of Iceberg, what a table that changes all the time is set to.
        given = {"write.merge.mode": "merge-on-read"} if kind == "iceberg" else {}
        merge = merge_into(
            spark, sim.stream_arn, to, format=kind, properties=given, connection=connection
        )
        table = to if kind == "iceberg" else f"delta.`{to}`"
        rows = spark.table(table)
        others = [name for name in rows.columns if name != "pk"]
        copies = rows.crossJoin(spark.range(_COPIES)).selectExpr(
            "pk || if(id = 0, '', '-' || id) AS pk", *others
        )
        ordered = copies.select(*rows.columns).repartition(2)
        ordered.writeTo(table).overwrite(lit(True))
        for number, count in enumerate(_in_turn(sim)):
            began = time.monotonic()
            if number < _RUNS:
                reader = spark.readStream.format("dynamodb_streams").options(**merge.options)
                writer = reader.load().writeStream.foreachBatch(merge)
                query = writer.option("checkpointLocation", merge.checkpoint).start()
                done = 0
            done += count
            while sum(each["numInputRows"] for each in query.recentProgress) < done:
                query.awaitTermination(0.05)
            took = time.monotonic() - began
            if count == SMALL:  # in one micro-batch or in two, as the shards' pages come
                took = query.recentProgress[-1]["durationMs"]["triggerExecution"] / 1000
            yield count, took
            if number < _RUNS - 1:
                query.stop()
        query.stop()
        session.stop(spark)


if __name__ == "__main__":
    for measured in _by_spark(sys.argv[1:]):
        print(json.dumps(measured), flush=True)
