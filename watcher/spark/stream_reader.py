"""The streaming read of one stream: the driver plans, executors read."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from watcher.aws.arns import table_of
from watcher.errors import UsageError
from watcher.pull.ranges import RangeReader
from watcher.spark import offsets
from watcher.spark.compat import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from watcher.spark.offsets import Offset, OffsetJson
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

logger = logging.getLogger("watcher")


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The streaming read: the planner lives in the driver, `read` runs in the executors."""

    def __init__(
        self,
        options: SourceOptions,
        schema: StructType,
        parallelism: int,
        *,
        planner: Callable[[SourceOptions], Planner] = Planner.connected,
        reader: Callable[[SourceOptions, str], RangeReader] = connected_reader,
        keys: KeysOf = no_keys,
    ) -> None:
        self._options = options
        self._keys = keys
        self._rows = TaskRows(options, schema, reader)
        has_images = {"new_image", "old_image"} & set(schema.names)
        self._images = options.image_format if has_images else None
        self._parallelism = parallelism
        # Made at the first use: this object is pickled for the executors, sockets can't be.
        self._make_planner = planner
        self._made_planner: Planner | None = None

    @property
    def _planner(self) -> Planner:
        if self._made_planner is None:
            self._made_planner = self._make_planner(self._options)
        return self._made_planner

    def _planner_of(self, stream: str) -> Planner:
        """Returns the planner of an offset's stream: also one that was, or is, a table's newest."""
        planner = self._planner
        is_same = stream == planner.arn
        if (is_same and not planner.has_begun_anew) or not self.reads(stream):
            return planner
        planner.stop()
        if not is_same:
            logger.info(f"Continuing with the table's stream {stream}")
        options = msgspec.structs.replace(self._options, stream=stream)
        self._made_planner = self._make_planner(options)
        self._made_planner.take_over(planner)
        return self._planner

    def reads(self, stream: str) -> bool:
        """True for the ARN of the stream that is named, or of one of the table that is."""
        planner = self._planner
        of_table = self._options.of_table and table_of(stream) == table_of(planner.arn)
        return of_table or stream in (planner.arn, planner.successor)

    @property
    def awaits_others(self) -> bool:
        """True if buffered records wait for a shard that is behind them in event time."""
        return self._made_planner is not None and self._made_planner.awaits_others

    def initialOffset(self) -> OffsetJson:
        """Returns a constant; the first micro-batch is empty and ends at the real positions."""
        return offsets.INITIAL

    def getDefaultReadLimit(self) -> ReadLimit:
        """Returns `maxRecordsPerTrigger`."""
        most = self._options.max_records
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        """Fixes the moment at which `availableNow` ends."""
        self._planner.stop_at_now()

    def latestOffset(self, start: OffsetJson, limit: ReadLimit) -> OffsetJson:
        """Returns the end of the next micro-batch."""
        return self._latest(start, limit.max_rows if isinstance(limit, ReadMaxRows) else None)

    def _latest(self, start: OffsetJson, most: int | None) -> OffsetJson:
        if self._options.stop_file is not None and os.path.exists(self._options.stop_file):
            return start
        begin = offsets.from_json(start)
        if begin is None:
            return offsets.to_json(self._planner.initial_offset(), self._images)
        self._refuse_other_images(begin)
        end = self._planner_of(begin.stream).latest(begin, most)
        return start if end is begin else offsets.to_json(end, self._images)

    def _refuse_other_images(self, stored: Offset) -> None:
        """Raises UsageError where the checkpoint's images have another form.

        A reader of the query's files would find both in them.
        """
        if None not in (stored.images, self._images) and stored.images != self._images:
            raise UsageError(
                f"the checkpoint's images are {stored.images}, not {self._images}: set that "
                "imageFormat, or give another checkpoint"
            )

    def reportLatestOffset(self) -> dict[str, int] | None:
        """Returns lag and shards, for the query's progress."""
        return None if self._made_planner is None else self._made_planner.report()

    def partitions(self, start: OffsetJson, end: OffsetJson) -> Sequence[InputPartition]:
        """Returns the ranges of a micro-batch, with their pages where they were read already."""
        finish = offsets.from_json(end)
        begin = offsets.from_json(start)
        begin = begin or (finish and offsets.start_of_first_batch(finish))
        if begin is None or finish is None:
            return []
        if begin.stream != finish.stream:  # all of that was delivered before this one's turn came
            begin = Offset(finish.stream, {})
        self._refuse_other_images(finish)
        planner = self._planner_of(finish.stream)
        tasks = share_among_tasks(planner.ranges(begin, finish), self._parallelism)
        keys = self._keys(self._options.connection, finish.stream) if tasks else None
        names = planner.key_names if tasks else ()
        return [TaskPartition(finish.stream, each, keys, names) for each in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yields the rows of one task, shard by shard."""
        return self._rows.read(partition)

    def stop(self) -> None:
        """Ends the background reading."""
        if self._made_planner is not None:
            self._made_planner.stop()
