"""`items`: a table's items as a DataFrame with the columns of the source, by a parallel scan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from watcher.aws.arns import region_in
from watcher.aws.connect import connect
from watcher.aws.tables import ReadPace, for_task
from watcher.records.wire import SNAPSHOT, WireChange
from watcher.spark.columns import ArrowEncoder, key_of_item
from watcher.spark.options import SourceOptions
from watcher.spark.tasks import row_encoder
from watcher.time_machine.table import open_table

# A task that fails reads its part again: some minutes' worth.
_PART_BYTES: Final = 128 * 1024 * 1024
_PARTS_MAX: Final = 10_000


class ItemsReader(DataSourceReader):
    """The batch read of a table's items, each by a consistent read."""

    def __init__(self, options: SourceOptions, schema: StructType, parallelism: int) -> None:
        self._options = options
        self._encoder: ArrowEncoder = row_encoder(options, schema)
        self._parallelism = parallelism

    def partitions(self) -> Sequence[InputPartition]:
        """Returns the segments of the scan; each item is as of its beginning, or later."""
        options, began = self._options, datetime.now(UTC)
        service, arn = connect(options.stream, options.connection)
        table = open_table(service.table(arn), options.connection)
        large = min(table.description.size // _PART_BYTES, _PARTS_MAX)
        count = options.segments or max(2 * self._parallelism, large)
        keys = list(table.description.types)
        return [
            InputPartition((arn, table.name, keys, began, segment, count))
            for segment in range(count)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yields a segment's rows; an item has no sequence number."""
        arn, table, keys, began, segment, count = partition.value
        options, region = self._options, region_in(arn)
        connection = options.connection
        if connection.region is None:
            connection = msgspec.structs.replace(connection, region=region)
        at_once = min(self._parallelism, count)
        pace = ReadPace(options.read_limit and options.read_limit / at_once)
        scan = for_task(connection).scan(table, segment, count, on_units=pace.on_units)
        time = began.timestamp()
        for items in filter(None, scan):
            rows = (WireChange("", time, key_of_item(item, keys), item) for item in items)
            yield self._encoder.encode_items(((SNAPSHOT, row) for row in rows), region, keys)
