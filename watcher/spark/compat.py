"""The differences between the Sparks that the source runs on: 4.0 to 4.3, classic and Connect.

Up to 4.1, Spark asks a source where a stream ends without telling where it begins, and knows no row
limits. Where it begins stands in its own log of offsets, which is read here once.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from inspect import signature
from typing import Any, Final, Protocol, TypeVar

import pyarrow as pa
import pyspark
from pyarrow import fs
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.pandas import types
from pyspark.sql.types import StructType

from watcher.clock import CLOCK, Clock
from watcher.errors import UsageError, WatcherError
from watcher.spark import offsets
from watcher.spark.offsets import OffsetJson

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # 4.0 and 4.1
    HAS_ADMISSION_CONTROL = False

    class ReadLimit:  # type: ignore[no-redef]
        """As Spark 4.2 has it."""

    class ReadAllAvailable(ReadLimit):  # type: ignore[no-redef]
        """As Spark 4.2 has it."""

    class ReadMaxRows(ReadLimit):  # type: ignore[no-redef]
        """As Spark 4.2 has it."""

        def __init__(self, max_rows: int) -> None:
            self.max_rows = max_rows

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """As Spark 4.2 has it."""

else:
    HAS_ADMISSION_CONTROL = True
    """True where Spark tells a source where a micro-batch begins, and its row limit."""

__all__ = [
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "SupportsTriggerAvailableNow",
]


def context_of(spark: SparkSession) -> pyspark.SparkContext | None:
    """Returns the SparkContext of a classic session; None on Spark Connect, whose client has none.

    https://spark.apache.org/docs/latest/spark-connect-overview.html
    """
    try:
        return spark.sparkContext
    except PySparkException:  # JVM_ATTRIBUTE_NOT_SUPPORTED
        return None


def is_registered(error: PySparkException) -> bool:
    """True where Spark has found the source by itself: 4.0 minds, newer ones don't."""
    return error.getCondition() == "DATA_SOURCE_ALREADY_EXISTS"


def arrow_schema(schema: StructType) -> pa.Schema:
    """Returns Spark's schema as Arrow's, its timestamps in UTC."""
    # Up to 4.1 that is the default, and the parameter has another name.
    zone: dict[str, Any] = (
        {"timezone": "UTC"} if "timezone" in signature(types.to_arrow_schema).parameters else {}
    )
    return types.to_arrow_schema(schema, **zone)


class Spark42Reader(Protocol):
    """The streaming read as Spark 4.2 and newer call it."""

    @property
    def awaits_others(self) -> bool: ...
    def reads(self, stream: str) -> bool: ...
    def initialOffset(self) -> OffsetJson: ...
    def getDefaultReadLimit(self) -> ReadLimit: ...
    def latestOffset(self, start: OffsetJson, limit: ReadLimit) -> OffsetJson: ...
    def partitions(self, start: OffsetJson, end: OffsetJson) -> Sequence[InputPartition]: ...
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]: ...
    def stop(self) -> None: ...


# The first micro-batch ends after so long without news, as a shard is read every second; …
_QUIET_SECONDS: Final = 1.5
_QUIET_POLL_SECONDS: Final = 0.25
# … at the latest after this.
_FIRST_BATCH_SECONDS: Final = 30.0


class Spark40Reader(DataSourceStreamReader):
    """The streaming read as Spark 4.0 and 4.1 call it.

    `checkpoint` is the query's: its offsets tell where this process's first micro-batch begins.
    """

    def __init__(
        self,
        reader: Spark42Reader,
        checkpoint: str,
        clock: Clock = CLOCK,
    ) -> None:
        self._clock = clock
        self._reader = reader
        self._checkpoint = checkpoint
        self._end: OffsetJson | None = None
        self._start: OffsetJson = {}

    def initialOffset(self) -> OffsetJson:
        """Returns the constant of `StreamReader.initialOffset`."""
        return self._reader.initialOffset()

    def latestOffset(self) -> OffsetJson:  # type: ignore[override]
        """Returns the end of the next micro-batch.

        The first has records, since `availableNow` makes no second: its end says where it began.
        """
        limit = self._reader.getDefaultReadLimit()
        if self._end is not None:
            self._start = self._end
            self._end = self._reader.latestOffset(self._start, limit)
            return self._end
        self._start = stored_offset(self._checkpoint, self._reader.reads)
        if self._start:
            self._end = self._first(self._start, limit)
        else:
            initial = self._reader.latestOffset(self._start, limit)
            self._end = offsets.with_begun(self._first(initial, limit), initial)
        return self._end

    def _first(self, start: OffsetJson, limit: ReadLimit) -> OffsetJson:
        """Returns the end of a process's first micro-batch: all that comes until nothing more does.

        It may be the only one.
        """
        began = quiet_since = self._clock.monotonic()
        end = self._reader.latestOffset(start, limit)
        while end["stream"] != start["stream"]:  # all of that stream is done: the next one's turn
            start, end = end, self._reader.latestOffset(end, limit)
        while True:
            now = self._clock.monotonic()
            if self._reader.awaits_others:
                began = quiet_since = now
            elif now >= min(
                began + _FIRST_BATCH_SECONDS,
                quiet_since + _QUIET_SECONDS,
            ):
                return end
            self._clock.sleep(_QUIET_POLL_SECONDS)
            grown = self._reader.latestOffset(start, limit)
            if grown != end:
                end, quiet_since = grown, now

    def partitions(self, start: OffsetJson, end: OffsetJson) -> Sequence[InputPartition]:
        """Returns the reader's. Raises UsageError where another checkpoint was read."""
        if end == self._end and start != self._start:
            raise UsageError(
                "checkpointLocation is not the query's own: give the same to readStream and "
                "writeStream, and remove the newest file of its folder offsets"
            )
        return self._reader.partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yields the reader's rows."""
        return self._reader.read(partition)

    def stop(self) -> None:
        """Ends the background reading."""
        self._reader.stop()


_Reader = TypeVar("_Reader", bound=Spark42Reader)


def adapted_reader(reader: _Reader, checkpoint: str | None) -> _Reader | Spark40Reader:
    """Returns the streaming read for the Spark that is installed. Raises UsageError."""
    if HAS_ADMISSION_CONTROL:
        return reader
    if checkpoint is None:
        raise UsageError(
            f'Spark {pyspark.__version__} needs .option("checkpointLocation", …) on readStream, '
            "the same as on writeStream (4.2 and newer do not)"
        )
    return Spark40Reader(reader, checkpoint)


class _RefusedReader(DataSourceStreamReader):
    """Stands for a reader that could not be made; raises the cause where Spark shows it."""

    def __init__(self, error: WatcherError) -> None:
        self._error = error

    def initialOffset(self) -> OffsetJson:
        """Raises the error."""
        raise self._error

    def latestOffset(self) -> OffsetJson:  # type: ignore[override]
        """Raises the error."""
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Raises the error."""
        raise self._error


def reader_or_refusal(make: Callable[[], DataSourceStreamReader]) -> DataSourceStreamReader:
    """Returns the reader that `make` makes, or one that raises its error: Spark hides the first."""
    try:
        return make()
    except WatcherError as error:
        return _RefusedReader(error)


def stored_offset(checkpoint: str, reads: Callable[[str], bool]) -> OffsetJson:
    """Returns the newest offset in a query's checkpoint; an empty one before the first.

    Of the source that `reads` the offset's stream. Raises UsageError where the folder can't be
    read.
    """
    try:
        system, path = file_system(checkpoint)
        found = system.get_file_info(fs.FileSelector(f"{path}/offsets", allow_not_found=True))
        numbers = [int(each.base_name) for each in found if each.base_name.isdecimal()]
        if not numbers:
            return {}
        with system.open_input_stream(f"{path}/offsets/{max(numbers)}") as stream:
            lines = stream.read().decode().splitlines()
    except (OSError, pa.ArrowException) as error:
        raise UsageError(f"can't be read: {error}", "checkpointLocation", checkpoint) from error
    # A version, what Spark notes, and then an offset for each source.
    stored = [json.loads(line) for line in lines[2:] if line.startswith("{")]
    mine = [each for each in stored if reads(str(each.get("stream")))]
    if len(mine) > 1:
        raise UsageError(f"Spark {pyspark.__version__} reads a stream once in a query, not twice")
    return mine[0] if mine else {}


def file_system(path: str) -> tuple[fs.FileSystem, str]:
    """Returns the file system of a path as Spark takes it, and the path in it."""
    for theirs, ours in (("s3a://", "s3://"), ("dbfs:/", "/dbfs/"), ("file:/", "/")):
        if path.startswith(theirs):
            path = ours + path.removeprefix(theirs).lstrip("/")
    if "://" not in path:
        path = os.path.abspath(path)
    system, inside = fs.FileSystem.from_uri(path)
    return system, inside.rstrip("/")
