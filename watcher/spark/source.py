"""`format("dynamodb_streams")`: a table's changes as a Spark stream or a DataFrame."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, ClassVar

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from watcher.errors import UsageError
from watcher.reading.lineage import Lineage
from watcher.reading.unlisted import without_gaps
from watcher.service.connect import connect
from watcher.service.model import CLOCKS_APART, Latest, Position
from watcher.spark import offsets, ranges
from watcher.spark.background import SHARD_BYTES, Slice
from watcher.spark.offsets import Range
from watcher.spark.options import SourceOptions, parse
from watcher.spark.planner import Planner
from watcher.spark.ranges import Chunk, Source
from watcher.spark.schema import Columns, column_names, ddl
from watcher.spark.typed import refuse_unfit

# A range whose pages are not at hand may be of any size.
_UNKNOWN_BYTES = SHARD_BYTES


class Piece(msgspec.Struct):
    """A range, and its pages where the driver has read them already."""

    between: Range
    slices: list[Slice] | None = None

    @property
    def size(self) -> int:
        """How much there is to do, in bytes of packed pages."""
        if self.slices is None:
            return _UNKNOWN_BYTES
        return sum(each.bytes for each in self.slices)


class StreamPartition(InputPartition):
    """What one task of a micro-batch reads: some ranges, each in its order."""

    def __init__(self, source: Source, pieces: list[Piece]) -> None:
        self.source = source
        self.pieces = pieces


class BatchPartition(InputPartition):
    """What one task of a batch read reads: one shard."""

    def __init__(self, source: Source, shard_id: str, start: Position, end: datetime) -> None:
        self.source = source
        self.shard_id = shard_id
        self.start = start
        self.end = end


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The streaming read: the planner lives in the driver, `read` runs in the executors."""

    def __init__(self, options: SourceOptions, schema: StructType, parallelism: int) -> None:
        self._options = options
        self._columns = _columns(options, schema)
        self._parallelism = parallelism
        # Made at the first use: this object travels to the executors, sockets do not.
        self._made_planner: Planner | None = None

    @property
    def _planner(self) -> Planner:
        if self._made_planner is None:
            self._made_planner = Planner(self._options)
        return self._made_planner

    def initialOffset(self) -> dict[str, Any]:
        """A constant; the first micro-batch is empty and ends at the real positions."""
        return offsets.NOWHERE

    def getDefaultReadLimit(self) -> ReadLimit:
        """`maxRecordsPerTrigger`."""
        limit = self._options.max_records
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the moment at which `availableNow` ends."""
        self._planner.stop_at_now()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next micro-batch."""
        begin = offsets.from_json(start)
        if begin is None:
            return offsets.to_json(self._planner.anchor())
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        end = self._planner.latest(begin, most)
        return start if end is begin else offsets.to_json(end)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Lag and shards, for the query's progress."""
        return None if self._made_planner is None else self._made_planner.report()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The ranges of a micro-batch, with their pages where they were read already."""
        begin, finish = offsets.from_json(start), offsets.from_json(end)
        if begin is None or finish is None:
            return []
        source = Source(self._options.connection, finish.stream, self._options.fail_on_data_loss)
        pieces = [Piece(each, self._planner.slices(each)) for each in offsets.ranges(begin, finish)]
        for piece in pieces:
            # As of a shard that had its turn long ago, or of a micro-batch before a restart.
            if piece.slices is None:
                self._planner.say_if_too_late(piece.between, begin, finish)
        bins = _packed([each for each in pieces if each.slices != []], self._parallelism)
        return [StreamPartition(source, pieces) for pieces in bins]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task, shard by shard."""
        assert isinstance(partition, StreamPartition)
        for piece in partition.pieces:
            for chunk in _chunks(partition.source, piece):
                yield self._columns.batch(chunk, piece.between.shard_id)

    def stop(self) -> None:
        """End the background reading."""
        if self._made_planner is not None:
            self._made_planner.stop()


class BatchReader(DataSourceReader):
    """The batch read: everything in retention (or between two times), a partition per shard."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._columns = _columns(options, schema)

    def partitions(self) -> Sequence[InputPartition]:
        """One partition per shard that has records up to now."""
        options = self._options
        streams, arn = connect(options.stream, options.connection)
        listing = without_gaps(streams, arn)
        lineage = Lineage(options.start)
        lineage.update(listing.shards)
        source = Source(options.connection, arn, options.fail_on_data_loss)
        end = options.end or listing.time + CLOCKS_APART
        listed = {shard.id for shard in listing.shards}
        # A parent that left the listing is gone: there is nothing to read, and nothing is lost.
        return [
            BatchPartition(source, shard.id, shard.position, end)
            for shard in lineage.unfinished
            if shard.id in listed and not isinstance(shard.position, Latest)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one shard."""
        if not isinstance(partition, BatchPartition):
            return  # Spark's own, for a stream without shards
        source, shard_id = partition.source, partition.shard_id
        for chunk in ranges.read_until(source, shard_id, partition.start, partition.end):
            yield self._columns.batch(chunk, shard_id)


class DynamoDBStreams(DataSource):
    """Changes of a DynamoDB table."""

    parallelism: ClassVar[int] = 2
    """How many tasks run at once: `register` knows."""

    @classmethod
    def name(cls) -> str:
        """What goes into `format(…)`."""
        return "dynamodb_streams"

    def schema(self) -> str:
        """The columns; they depend on `imageSchema` and `changedAttributes`."""
        given = dict(self.options.items())
        # Whether this is for a stream is not known here: both have these options.
        for name in ("endingposition", "maxrecordspertrigger"):
            given.pop(name, None)
        return ddl(parse(given, streaming=True))

    def streamReader(self, schema: StructType) -> StreamReader:
        """For `spark.readStream`."""
        return StreamReader(parse(dict(self.options), streaming=True), schema, self.parallelism)

    def reader(self, schema: StructType) -> BatchReader:
        """For `spark.read`."""
        return BatchReader(parse(dict(self.options), streaming=False), schema)


def _columns(options: SourceOptions, schema: StructType) -> Columns:
    refuse_unfit(schema)
    arrow = to_arrow_schema(schema, timezone="UTC")
    if arrow.names != column_names(options):
        raise UsageError(".schema(…) can't be given to dynamodb_streams; use imageSchema")
    return Columns(options, arrow)


def _chunks(source: Source, piece: Piece) -> Iterator[Chunk]:
    if piece.slices is None:
        yield from ranges.read(source, piece.between)
    else:
        for each in piece.slices:
            yield Chunk(each.page.body(), each.first, each.last)


def _packed(pieces: list[Piece], parallelism: int) -> list[list[Piece]]:
    """Few tasks (each costs some 30 ms), none with more pages than Spark lets through."""
    bins: list[tuple[int, list[Piece]]] = []
    for piece in sorted(pieces, key=lambda piece: -piece.size):
        smallest = min(range(len(bins)), key=lambda index: bins[index][0], default=-1)
        full = len(bins) >= parallelism and (
            piece.slices is None or bins[smallest][0] + piece.size <= 2 * SHARD_BYTES
        )
        if full:
            size, inside = bins[smallest]
            inside.append(piece)
            bins[smallest] = (size + piece.size, inside)
        else:
            bins.append((piece.size, [piece]))
    return [inside for _, inside in bins]
