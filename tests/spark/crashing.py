"""Runs the archive job and kills itself, JVM and all, at a chosen point of a micro-batch."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql.types import StructType

from watcher.service.connection import Connection
from watcher.spark import session
from watcher.spark.jobs import archive
from watcher.spark.options import parse
from watcher.spark.source import DynamoDBStreams, StreamReader

POINT, STREAM, ENDPOINT, TO = sys.argv[1:]
FLAG = Path(TO + ".crash-now")


class CrashingReader(StreamReader):
    """Stops at the chosen point and says that it is there."""

    def read(self, partition: Any) -> Iterator[Any]:
        for index, batch in enumerate(super().read(partition)):
            yield batch
            if POINT == "reading" and index == 1:
                self.stop_here()
        if POINT == "read":
            self.stop_here()

    @staticmethod
    def stop_here() -> None:
        FLAG.touch()
        time.sleep(600)


class CrashingStreams(DynamoDBStreams):
    def streamReader(self, schema: StructType) -> StreamReader:
        return CrashingReader(parse(dict(self.options), streaming=True), schema, self.parallelism)


def is_time() -> bool:
    if POINT == "commit":  # the sink has the batch, Spark's log has not
        return Path(TO, "_spark_metadata", "1").exists()
    return FLAG.exists()


def crash(jvm: int) -> None:
    while not is_time():
        time.sleep(0.0005)
    os.kill(jvm, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


spark = session.start(master="local[2]")
spark.dataSource.register(CrashingStreams)
jvm: int = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]
threading.Thread(target=crash, args=(jvm,), daemon=True).start()
archive(
    STREAM,
    to=TO,
    once=True,
    # Without a limit, all but two pages of an open shard is left to executors.
    max_records=None if POINT == "read" else 3000,
    connection=Connection("us-east-1", None, ENDPOINT),
    spark=spark,
)
