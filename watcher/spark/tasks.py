"""Tasks: the ranges that each of them reads, and the rows that it makes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Final

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from watcher.aws.config import AwsConfig
from watcher.aws.connect import for_worker
from watcher.aws.credentials import Keys, handed_credentials
from watcher.aws.model import Service
from watcher.clock import CLOCK, Clock
from watcher.errors import UsageError
from watcher.pull.ranges import Range, RangeReader
from watcher.spark import compat
from watcher.spark.buffered_shard import BufferedPage
from watcher.spark.columns import ArrowEncoder, columns
from watcher.spark.micro_batch import LIMITS
from watcher.spark.options import REMEDY, SourceOptions
from watcher.streams.losses import Losses
from watcher.streams.read_rate import AdaptiveRateLimit

READING_TASKS: Final = 256
"""The most tasks that read ranges; up to this number, each range has its own."""
# The packed pages of a task: some 200 ms of one core; a task costs 30 ms.
_TASK_BYTES: Final = 2 * 1024 * 1024

KeysOf = Callable[[AwsConfig, str], Keys | None]
"""Returns the driver's keys for a connection and a stream, for executors to read with."""


def no_keys(connection: AwsConfig, arn: str) -> None:
    """Returns no keys: the executors have their own."""


class BufferedRange(msgspec.Struct, frozen=True):
    """A range, and its pages where the driver has read them already."""

    between: Range
    pages: list[BufferedPage] | None = None

    def joined(self, later: BufferedRange) -> BufferedRange:
        """Returns this range with the one that follows it in its shard."""
        between = msgspec.structs.replace(self.between, upto=later.between.upto)
        if self.pages is None or later.pages is None:
            return BufferedRange(between)
        return BufferedRange(between, self.pages + later.pages)

    @property
    def size(self) -> int:
        """Returns how much there is to do, in bytes of packed pages."""
        # A range whose pages are not at hand may be of any size.
        return LIMITS.shard if self.pages is None else sum(each.size for each in self.pages)


class TaskPartition(InputPartition):
    """The work of one task: some ranges, each in its order; and the keys to read them with.

    Keys have their place here since Spark writes a partition nowhere: it is no part of an offset,
    a plan or an event, and goes to its executor only. (A reader is part of the task's binary.)
    """

    def __init__(
        self,
        arn: str,
        ranges: list[BufferedRange],
        keys: Keys | None,
        key_names: Sequence[str] = (),
    ) -> None:
        self.arn = arn
        self.ranges = ranges
        self.key_names = key_names
        """The attributes of the table's key, in its order."""
        self.keys = keys if any(each.pages is None for each in ranges) else None


class TaskRows:
    """Makes a task's rows, on its executor.

    `connect` makes what talks to the service there: sockets can't be pickled.
    """

    def __init__(
        self,
        options: SourceOptions,
        schema: StructType,
        connect: Callable[[SourceOptions, str], RangeReader],
    ) -> None:
        self._options = options
        self._encoder = row_encoder(options, schema)
        self._connect = connect

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yields the rows of one task, shard by shard."""
        if not isinstance(partition, TaskPartition):
            return  # Spark's own, for a stream without shards
        if partition.keys is not None:
            handed_credentials(self._options.connection, partition.arn).take(partition.keys)
        for each in partition.ranges:
            if each.pages is None:
                pages = self._connect(self._options, partition.arn).read(each.between)
            else:
                pages = (page.page() for page in each.pages)
            names = partition.key_names
            for page in pages:
                yield self._encoder.encode(page, each.between.shard_id, partition.arn, names)


def row_encoder(options: SourceOptions, schema: StructType) -> ArrowEncoder:
    """Returns the encoder of a read's rows. Raises UsageError for another schema than its own."""
    arrow = compat.arrow_schema(schema)
    if arrow.names != list(columns(options)):
        raise UsageError(".schema(…) can't be given: the source has its own")
    return ArrowEncoder(options, arrow)


def connected_reader(options: SourceOptions, arn: str) -> RangeReader:
    """Returns a reader over the real service."""
    return range_reader(options, arn, _service(options.connection, arn), rates=_rates(arn))


def range_reader(
    options: SourceOptions,
    arn: str,
    service: Service,
    clock: Clock = CLOCK,
    *,
    rates: dict[str, AdaptiveRateLimit] | None = None,
) -> RangeReader:
    """Returns a reader that treats lost records as the options say."""
    losses = Losses(is_error=options.fail_on_data_loss, remedy=REMEDY, clock=clock)
    return RangeReader(arn, service, losses, clock, rates=rates)


@lru_cache(maxsize=8)
def _service(connection: AwsConfig, arn: str) -> Service:
    """Returns one client for a worker's life: making one takes longer than reading a page."""
    return for_worker(connection, arn, handed_credentials(connection, arn))


@lru_cache(maxsize=8)
def _rates(arn: str) -> dict[str, AdaptiveRateLimit]:
    """Returns each shard's rate limit, as earlier tasks have learnt it in this worker."""
    return {}


def share_among_tasks(
    ranges: list[BufferedRange],
    parallelism: int,
) -> list[list[BufferedRange]]:
    """Returns the ranges of each task; no task has more pages than Spark lets through.

    There are as many tasks as there is work for, also where the cluster has grown since the query
    began. Shards of one lineage are in one task, in their order.
    """
    lineages: dict[str, list[BufferedRange]] = {}
    for each in ranges:
        lineages.setdefault(each.between.topmost or each.between.shard_id, []).append(each)
    reading = [each for each in lineages.values() if _is_to_be_read(each)]
    held = [each for each in lineages.values() if not _is_to_be_read(each)]
    alone = _packed(reading, READING_TASKS)
    work = sum(map(_size, held)) // _TASK_BYTES
    return alone + _packed(held, max(parallelism, work))


def _is_to_be_read(line: list[BufferedRange]) -> bool:
    return any(each.pages is None for each in line)


def _size(line: list[BufferedRange]) -> int:
    return sum(each.size for each in line)


def _packed(lines: list[list[BufferedRange]], most: int) -> list[list[BufferedRange]]:
    bins: list[tuple[int, list[BufferedRange]]] = []
    for each in sorted(lines, key=lambda each: -_size(each)):
        smallest = min(range(len(bins)), key=lambda index: bins[index][0], default=-1)
        full = len(bins) >= most and (
            _is_to_be_read(each) or bins[smallest][0] + _size(each) <= 2 * LIMITS.shard
        )
        if full:
            size, inside = bins[smallest]
            bins[smallest] = (size + _size(each), inside + each)
        else:
            bins.append((_size(each), each))
    return [inside for _, inside in bins]
