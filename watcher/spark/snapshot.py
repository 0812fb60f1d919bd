"""`snapshot`: the items of a table as a query's first micro-batch, before its changes."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from watcher.aws.arns import region_in
from watcher.aws.config import AwsConfig
from watcher.aws.connect import connect
from watcher.aws.tables import Description, for_task, tables
from watcher.pull.table_snapshot import SHARD_ID, snapshot_record
from watcher.spark import compat
from watcher.spark.columns import ArrowEncoder, without
from watcher.spark.offsets import Snapshot
from watcher.spark.options import SourceOptions
from watcher.streams.messages import Page

# A task that fails reads its part again: some minutes' worth.
_PART_BYTES: Final = 128 * 1024 * 1024
_PARTS_MAX: Final = 10_000

_encode: Final = msgspec.json.Encoder().encode


class SnapshotPartition(InputPartition):
    """A part of the scan, which one task reads."""

    def __init__(self, arn: str, table: str, keys: list[str], part: int, of: Snapshot) -> None:
        self.arn = arn
        self.table = table
        """The name by which calls reach it."""
        self.keys = keys
        """The names of the key's attributes."""
        self.part = part
        self.of = of


def plan(arn: str, connection: AwsConfig, time: datetime, parallelism: int) -> Snapshot:
    """Returns the scan of a stream's table."""
    _, table = _table(arn, connection)
    parts = max(2 * parallelism, table.size // _PART_BYTES)
    return Snapshot(min(parts, _PARTS_MAX), time)


def partitions(arn: str, connection: AwsConfig, of: Snapshot) -> Sequence[SnapshotPartition]:
    """Returns the parts of the scan of a stream's table."""
    name, table = _table(arn, connection)
    keys = list(table.types)
    return [SnapshotPartition(arn, name, keys, part, of) for part in range(of.parts)]


def _table(arn: str, connection: AwsConfig) -> tuple[str, Description]:
    service, _ = connect(arn, connection)
    return tables(_in_region(connection, arn)).named(service.table(arn))


class SnapshotRows:
    """Makes the rows of a part of the scan, on its executor."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = compat.arrow_schema(schema)

    def read(self, partition: SnapshotPartition) -> Iterator[pa.RecordBatch]:
        """Yields a row for each item; an item has no sequence number."""
        encoder = ArrowEncoder(self._options, self._schema)
        client = for_task(_in_region(self._options.connection, partition.arn))
        count, parts = 0, partition.of.parts
        for items in client.scan(partition.table, partition.part, parts):
            if not items:
                continue
            # The numbers of a part rise, and no other part has them.
            numbers = range(partition.part + count * parts, sys.maxsize, parts)
            records = [
                self._record(item, number, partition)
                for item, number in zip(items, numbers, strict=False)
            ]
            count += len(items)
            page = Page(
                0, len(records), str(numbers[len(items) - 1]), _encode({"Records": records})
            )
            batch = encoder.encode(page, SHARD_ID, partition.arn)
            yield without(batch, "sequence_number")

    def _record(
        self, item: msgspec.Raw, number: int, partition: SnapshotPartition
    ) -> Mapping[str, Any]:
        time = partition.of.time.timestamp()
        record = snapshot_record(item, partition.keys, number=number, time=time)
        return {**record, "awsRegion": region_in(partition.arn)}


def _in_region(connection: AwsConfig, arn: str) -> AwsConfig:
    region = connection.region or region_in(arn)
    return msgspec.structs.replace(connection, region=region)
