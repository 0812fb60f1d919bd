"""The batch read of changes: everything in retention, or between two times, as one micro-batch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from watcher.pull.ranges import RangeReader
from watcher.spark.options import SourceOptions
from watcher.spark.planner import Planner
from watcher.spark.tasks import (
    KeysOf,
    TaskPartition,
    TaskRows,
    connected_reader,
    no_keys,
    share_among_tasks,
)


class BatchReader(DataSourceReader):
    """The batch read: the planner finds each shard's end, and executors read what is large.

    It has no `pushFilters`: Spark would apply one use's filters to every use of the same DataFrame
    (docs/spark.md, "What Spark lacks").
    """

    def __init__(
        self,
        options: SourceOptions,
        schema: StructType,
        *,
        parallelism: int = 2,
        planner: Callable[[SourceOptions], Planner] = Planner.connected,
        reader: Callable[[SourceOptions, str], RangeReader] = connected_reader,
        keys: KeysOf = no_keys,
    ) -> None:
        # A batch has no watermark: its shards need not keep together in event time.
        self._options = msgspec.structs.replace(
            options, of_table=False, max_event_time_skew=math.inf
        )
        self._parallelism = parallelism
        self._keys = keys
        self._rows = TaskRows(options, schema, reader)
        self._make_planner = planner

    def partitions(self) -> Sequence[InputPartition]:
        """Returns the tasks that read what is in the stream up to now."""
        planner = self._make_planner(self._options)
        try:
            ranges = planner.up_to_now()
            tasks = share_among_tasks(ranges, self._parallelism)
            names = planner.key_names if tasks else ()
        finally:
            planner.stop()
        keys = self._keys(self._options.connection, planner.arn) if tasks else None
        return [TaskPartition(planner.arn, each, keys, names) for each in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yields the rows of one task."""
        return self._rows.read(partition)
