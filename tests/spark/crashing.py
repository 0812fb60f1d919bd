"""Runs the archive job and kills itself, JVM and all, at a chosen point of a micro-batch."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyspark.sql.types import StructType

from watcher.aws.config import AwsConfig
from watcher.spark import session
from watcher.spark.folders import Folder
from watcher.spark.jobs import archive
from watcher.spark.lake import Lake
from watcher.spark.options import parse
from watcher.spark.source import DynamoDBStreams
from watcher.spark.stream_reader import StreamReader

POINT, STREAM, ENDPOINT, TO = sys.argv[1:]
FLAG = Path(TO + ".crash-now")


class CrashingReader(StreamReader):
    """Stops at the chosen point and says that it is there."""

    def read(self, partition: Any) -> Iterator[Any]:
        for index, batch in enumerate(super().read(partition)):
            yield batch
            if POINT == "reading" and index == 1:
                stop_here()


class CrashingStreams(DynamoDBStreams):
    def streamReader(self, schema: StructType) -> StreamReader:
        return CrashingReader(parse(dict(self.options), streaming=True), schema, self.parallelism)


def stop_here() -> None:
    FLAG.touch()
    time.sleep(600)


def move(self: Folder, name: str, to: Folder, as_name: str) -> None:
    """Of the second batch's files one is moved, and no other."""
    if POINT == "moving" and MOVED and "/batch-000000002-" in as_name:
        stop_here()
    sane_move(self, name, to, as_name)
    MOVED.extend([as_name] if "/batch-000000002-" in as_name else ())


def append(self: Lake, write: Callable[[str], None], number: int) -> list[str]:
    """The second batch is in, and Spark does not know."""
    files = sane_append(self, write, number)
    if POINT == "moved" and number == 2:
        stop_here()
    return files


def crash(jvm: int) -> None:
    while not FLAG.exists():
        time.sleep(0.0005)
    os.kill(jvm, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


MOVED: list[str] = []
sane_move, sane_append = Folder.move, Lake.append
Folder.move = move  # type: ignore[method-assign]
Lake.append = append  # type: ignore[method-assign]
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
    connection=AwsConfig("us-east-1", None, ENDPOINT),
    spark=spark,
)
