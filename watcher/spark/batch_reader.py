"""The batch read: everything in retention, or between two times."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from watcher.aws.background import BackgroundService
from watcher.aws.config import AwsConfig
from watcher.aws.connect import connect
from watcher.aws.model import Latest, Service
from watcher.aws.retry import first_listing
from watcher.clock import CLOCK, Clock, MachineTime
from watcher.pull.ranges import Range, RangeReader
from watcher.spark.options import SourceOptions
from watcher.spark.picklable import SparkPicklable
from watcher.spark.several_streams import StreamFinder
from watcher.spark.tasks import (
    BufferedRange,
    KeysOf,
    TaskPartition,
    TaskRows,
    connected_reader,
    no_keys,
)
from watcher.spark.timing import LIMITS, TIMING, Timing
from watcher.streams.coordinator import Coordinator
from watcher.streams.losses import Losses

_background = partial(BackgroundService, patience=TIMING.list_again_seconds)


class BatchReader(SparkPicklable, DataSourceReader):
    """The batch read: everything in retention (or between two times).

    A closed shard has a partition of its own; open ones share as many as there are cores.

    It has no `pushFilters`: Spark would apply one use's filters to every use of the same DataFrame
    (docs/spark.md, "A bug in Spark").
    """

    def __init__(
        self,
        options: SourceOptions,
        schema: StructType,
        *,
        parallelism: int = 2,
        connect: Callable[[str, AwsConfig], tuple[Service, str]] = connect,
        background: Callable[[Service], Service] = _background,
        reader: Callable[[SourceOptions, str], RangeReader] = connected_reader,
        keys: KeysOf = no_keys,
        clock: Clock = CLOCK,
        timing: Timing = TIMING,
    ) -> None:
        self._options = options
        self._parallelism = parallelism
        self._keys = keys
        self._rows = TaskRows(options, schema, reader)
        self._connect = connect
        self._background = background
        self._clock = clock
        self._timing = timing

    def partitions(self) -> Sequence[InputPartition]:
        """Returns the partitions of the shards that have records up to now."""
        began = MachineTime.now(self._clock)
        if not self._options.table_names:
            return self._partitions(self._options.stream, began)
        streams = StreamFinder(self._options).find()
        return [each for stream in streams for each in self._partitions(stream, began)]

    def _partitions(self, stream: str, began: MachineTime) -> list[InputPartition]:
        options = self._options
        service, arn = self._connect(stream, options.connection)
        losses = Losses(clock=self._clock)
        coordinator = Coordinator(arn, options.start, losses=losses, clock=self._clock)
        coordinator.start(first_listing(service, arn, self._clock))
        losses.warn_if_starting_late(coordinator.listing)
        background = self._background(service)
        while True:
            coordinator.take_ready()
            pending = coordinator.refresh(background)
            if coordinator.confirm_all_listed():
                break
            self._clock.sleep(min(coordinator.due_in(pending), self._timing.list_again_seconds))
        ranges = [
            Range(
                shard.id,
                shard.position,
                closed=coordinator.is_closed(shard.id),
                bounded_at=coordinator.written_at,
                began=began,
                end=options.end,
            )
            for shard in coordinator.lineage.unfinished
            if not isinstance(shard.position, Latest)
        ]
        keys = self._keys(options.connection, arn) if ranges else None
        return [
            TaskPartition(arn, list(map(BufferedRange, each)), keys) for each in self._tasks(ranges)
        ]

    def _tasks(self, ranges: list[Range]) -> list[list[Range]]:
        """Returns the ranges of each task: open shards, mostly waited for, share them."""
        are_open = [each for each in ranges if not each.closed]
        count = max(self._parallelism, math.ceil(len(are_open) / LIMITS.open_shards))
        shared = [are_open[first::count] for first in range(min(count, len(are_open)))]
        return [[each] for each in ranges if each.closed] + shared

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yields the rows of one task."""
        return self._rows.read(partition)
