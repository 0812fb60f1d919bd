"""The batch read: everything in retention, or between two times."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from watcher.aws.config import AwsConfig
from watcher.aws.connect import connect
from watcher.aws.lister import Lister
from watcher.aws.model import Latest, Service
from watcher.aws.retry import first_listing
from watcher.clock import CLOCK, Clock, MachineTime
from watcher.pull.ranges import Range, RangeReader
from watcher.spark.options import SourceOptions
from watcher.spark.tasks import (
    READING_TASKS,
    BufferedRange,
    KeysOf,
    TaskPartition,
    TaskRows,
    connected_reader,
    no_keys,
)
from watcher.streams.coordinator import Coordinator
from watcher.streams.losses import Losses

# The delay between checks whether another listing is due.
_LIST_AGAIN_SECONDS: Final = 0.25
# The most open shards of a task, which reads them side by side.
_OPEN_SHARDS: Final = 8

_background = partial(Lister, patience=_LIST_AGAIN_SECONDS)


class BatchReader(DataSourceReader):
    """The batch read: everything in retention (or between two times).

    A closed shard has a partition of its own, up to 256; open ones share as many as there are
    cores, or more.

    It has no `pushFilters`: Spark would apply one use's filters to every use of the same DataFrame
    (docs/spark.md, "What Spark lacks").
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
    ) -> None:
        self._options = options
        self._parallelism = parallelism
        self._keys = keys
        self._rows = TaskRows(options, schema, reader)
        self._connect = connect
        self._background = background
        self._clock = clock

    def partitions(self) -> Sequence[InputPartition]:
        """Returns the partitions of the shards that have records up to now."""
        began = MachineTime.now(self._clock)
        options = self._options
        service, arn = self._connect(options.stream, options.connection)
        losses = Losses(clock=self._clock)
        coordinator = Coordinator(arn, options.start, losses=losses, clock=self._clock)
        coordinator.start(first_listing(service, arn))
        losses.warn_if_starting_late(coordinator.listing)
        background = self._background(service)
        while True:
            coordinator.take_ready()
            pending = coordinator.refresh(background)
            if coordinator.confirm_all_listed():
                break
            self._clock.sleep(min(coordinator.due_in(pending), _LIST_AGAIN_SECONDS))
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
            TaskPartition(arn, list(map(BufferedRange, each)), keys, coordinator.listing.key_names)
            for each in self._tasks(ranges)
        ]

    def _tasks(self, ranges: list[Range]) -> list[list[Range]]:
        """Returns the ranges of each task: open shards, mostly waited for, share them."""
        closed = [each for each in ranges if each.closed]
        are_open = [each for each in ranges if not each.closed]
        count = max(self._parallelism, math.ceil(len(are_open) / _OPEN_SHARDS))
        return _dealt(closed, READING_TASKS) + _dealt(are_open, count)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yields the rows of one task."""
        return self._rows.read(partition)


def _dealt(ranges: list[Range], tasks: int) -> list[list[Range]]:
    return [ranges[first::tasks] for first in range(min(tasks, len(ranges)))]
