"""Runs archive jobs on one Spark, each to a point of a micro-batch, and kills JVM and driver."""

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pyspark.sql.types import StructType

from watcher.aws.config import AwsConfig
from watcher.spark import session
from watcher.spark.jobs import archive
from watcher.spark.jobs.archive import ArchiveFolder
from watcher.spark.options import parse
from watcher.spark.source import DynamoDBStreams
from watcher.spark.stream_reader import StreamReader

JOBS: dict[str, list[str]] = json.loads(sys.argv[1])
"""By its point, a job's stream, endpoint and folder."""


class CrashingReader(StreamReader):
    """Stops behind its first page, and says so."""

    def read(self, partition: Any) -> Iterator[Any]:
        for index, batch in enumerate(super().read(partition)):
            yield batch
            if index == 1:
                stop_here("reading")


class CrashingStreams(DynamoDBStreams):
    def streamReader(self, schema: StructType) -> StreamReader:
        options = parse(dict(self.options), streaming=True)
        is_it = self.options["endpointUrl"] == JOBS["reading"][1]
        return (CrashingReader if is_it else StreamReader)(options, schema, self.parallelism)


def flag(point: str) -> Path:
    return Path(JOBS[point][-1] + ".crash-now")


def stop_here(point: str) -> None:
    flag(point).touch()
    time.sleep(600)


def append(self: ArchiveFolder, rows: Any, number: int) -> None:
    """The second batch is in, as a whole or in part, and Spark does not know."""
    sane_append(self, rows, number)
    written = Path(self.path, f"batch={number:09}")
    if self.path == JOBS["committing"][-1] and number == 2:
        (written / "_SUCCESS").unlink()
        sorted(written.rglob("*.parquet"))[0].unlink()
        stop_here("committing")
    if self.path == JOBS["written"][-1] and number == 2:
        stop_here("written")


def run(stream: str, endpoint: str, to: str) -> None:
    connection = AwsConfig("us-east-1", None, endpoint)
    archive(stream, to=to, once=True, max_records=3000, connection=connection, spark=spark)


sane_append = ArchiveFolder.append
ArchiveFolder.append = append  # type: ignore[method-assign]
spark = session.start(master="local[3]")  # one of its tasks stands still
spark.dataSource.register(CrashingStreams)
jvm: int = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]
jobs = [ThreadPoolExecutor(1).submit(run, *job) for job in JOBS.values()]
while not (ended := [job for job in jobs if job.done()]) and not all(
    flag(point).exists() for point in JOBS
):
    time.sleep(0.02)
if not ended:
    os.kill(jvm, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
print([job.exception() for job in ended], file=sys.stderr, flush=True)
os._exit(1)
