"""The streaming read, of one stream or of several: the driver plans, executors read."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from watcher.aws.arns import table_of
from watcher.aws.model import TrimHorizon
from watcher.clock import CLOCK, Clock
from watcher.errors import ServiceError, StreamGoneError, UsageError
from watcher.pull.ranges import RangeReader
from watcher.spark import offsets, ranges
from watcher.spark.columns import image_shape, refuse_changed_images
from watcher.spark.compat import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from watcher.spark.offsets import Offset, OffsetJson
from watcher.spark.options import SourceOptions, wanted_streams
from watcher.spark.picklable import SparkPicklable
from watcher.spark.planner import Planner, Report
from watcher.spark.stream_finder import StreamFinder
from watcher.spark.tasks import (
    BufferedRange,
    KeysOf,
    TaskPartition,
    TaskRows,
    no_keys,
    share_among_tasks,
)
from watcher.spark.timing import TIMING, Timing

logger = logging.getLogger("watcher")

_STREAMS = "streams"


class StreamReader(SparkPicklable, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The streaming read: the planner lives in the driver, `read` runs in the executors."""

    def __init__(
        self,
        options: SourceOptions,
        schema: StructType,
        parallelism: int,
        *,
        planner: Callable[[SourceOptions], Planner] = Planner.connected,
        reader: Callable[[SourceOptions, str], RangeReader] = ranges.connected,
        keys: KeysOf = no_keys,
    ) -> None:
        self._options = options
        self._keys = keys
        self._rows = TaskRows(options, schema, reader)
        self._images = image_shape(options, schema)
        self._parallelism = parallelism
        self.stream_count = 1
        """How many streams the same query reads, one after the other."""
        # Made at the first use: this object is pickled for the executors, sockets can't be.
        self._make_planner = planner
        self._made_planner: Planner | None = None

    @property
    def _planner(self) -> Planner:
        if self._made_planner is None:
            self._made_planner = self._make_planner(self._options)
        self._made_planner.stream_count = self.stream_count
        return self._made_planner

    def _planner_of(self, stream: str) -> Planner:
        """Returns the planner of an offset's stream: also one that was, or is, a table's newest."""
        planner = self._planner
        if stream == planner.arn or not self.reads(stream):
            return planner
        planner.stop()
        logger.info(f"Going on with the table's stream {stream}")
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
        """True if there are records that wait for a shard that is behind them in event time."""
        return self._made_planner is not None and self._made_planner.awaits_others

    def initialOffset(self) -> OffsetJson:
        """Returns a constant; the first micro-batch is empty and ends at the real positions."""
        return offsets.INITIAL

    def getDefaultReadLimit(self) -> ReadLimit:
        """Returns `maxRecordsPerTrigger`, or `maxBytesPerTrigger`: Spark takes one limit."""
        options = self._options
        if options.max_records is not None:
            return ReadMaxRows(options.max_records)
        return ReadAllAvailable() if options.max_bytes is None else ReadMaxBytes(options.max_bytes)

    def prepareForTriggerAvailableNow(self) -> None:
        """Fixes the moment at which `availableNow` ends."""
        self._planner.stop_at_now()

    def latestOffset(self, start: OffsetJson, limit: ReadLimit) -> OffsetJson:
        """Returns the end of the next micro-batch."""
        begin = offsets.from_json(start)
        if begin is None:
            return offsets.to_json(self._planner.initial_offset(), self._images)
        refuse_changed_images(begin.images, self._images)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        size = None if isinstance(limit, ReadAllAvailable) else self._options.max_bytes
        end = self._planner_of(begin.stream).latest(begin, most, size)
        return start if end is begin else offsets.to_json(end, self._images)

    def reportLatestOffset(self) -> Report | None:
        """Returns lag and shards, for the query's progress."""
        return None if self._made_planner is None else self._made_planner.report()

    def partitions(self, start: OffsetJson, end: OffsetJson) -> Sequence[InputPartition]:
        """Returns the ranges of a micro-batch, with their pages where they were read already."""
        finish = offsets.from_json(end)
        begin = offsets.from_json(start) or (finish and offsets.start_of_first_batch(finish))
        if begin is None or finish is None:
            return []
        if begin.stream != finish.stream:  # all of that was delivered before this one's turn came
            begin = Offset(finish.stream, {})
        refuse_changed_images(finish.images, self._images)
        planner = self._planner_of(finish.stream)
        ranges = list[BufferedRange]()
        for between in offsets.ranges(begin, finish):
            pages = planner.pages(between)
            # As of a shard that had its turn long ago, or of a micro-batch before a restart.
            if pages is None:
                between = planner.for_executors(between, begin, finish)
            ranges.append(BufferedRange(between, pages))
        full = [each for each in ranges if each.pages != []]
        tasks = share_among_tasks(full, self._parallelism, self._options.min_partitions)
        keys = self._keys(self._options.connection, finish.stream) if tasks else None
        return [TaskPartition(finish.stream, each, keys) for each in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yields the rows of one task, shard by shard."""
        return self._rows.read(partition)

    def stop(self) -> None:
        """Ends the background reading."""
        if self._made_planner is not None:
            self._made_planner.stop()


class SeveralStreamsReader(SparkPicklable, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The streaming read of several streams; each is read as one on its own is.

    One that comes to match later is read from its first change on. Between streams there is no
    order. `reader` makes the reader of one of them.
    """

    def __init__(
        self,
        options: SourceOptions,
        reader: Callable[[SourceOptions], StreamReader],
        *,
        finder: Callable[[SourceOptions], StreamFinder] = StreamFinder,
        clock: Clock = CLOCK,
        timing: Timing = TIMING,
    ) -> None:
        self._options = options
        self._make_reader = reader
        self._make_finder = finder
        self._clock = clock
        self._timing = timing
        # Made at the first use: this object is pickled for the executors.
        self._finder: StreamFinder | None = None
        self._found: list[str] = []
        self._find_at = -math.inf
        self._readers: dict[str, StreamReader] = {}
        self._answered: set[str] = set()
        self._gone: set[str] = set()
        self._ends_now = False

    def initialOffset(self) -> OffsetJson:
        """Returns a constant, as for one stream."""
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Returns `maxRecordsPerTrigger`, or `maxBytesPerTrigger`."""
        return self._make_reader(self._options).getDefaultReadLimit()

    def prepareForTriggerAvailableNow(self) -> None:
        """Fixes the moment at which `availableNow` ends, for all of them."""
        self._ends_now = True
        for arn in self._find():
            self._reader(arn, joins=False)

    def latestOffset(self, start: OffsetJson, limit: ReadLimit) -> OffsetJson:
        """Returns the end of the next micro-batch; a limit is shared by all."""
        starts = offsets_by_stream(start)
        # A table's next stream comes once its last one is delivered.
        tables = {table_of(each) for each in starts.keys() - self._gone}
        news = [
            each for each in self._find() if not (self._moves_on(each) and table_of(each) in tables)
        ]
        arns = [each for each in dict.fromkeys([*starts, *news]) if each not in self._gone]
        if isinstance(limit, ReadMaxRows):
            limit = ReadMaxRows(max(1, limit.max_rows // len(arns)))
        ends = {}
        for arn in arns:
            try:
                reader = self._reader(arn, joins=bool(starts) and arn not in starts)
                reader.stream_count = len(arns)
                end = reader.latestOffset(starts.get(arn, {}), limit)
                ends[end["stream"]] = end
                self._readers[end["stream"]] = self._readers.pop(arn)
            except StreamGoneError as error:
                if arn in starts and arn not in self._answered and self._options.fail_on_data_loss:
                    raise
                logger.warning(f"{error}; the others go on")
                self._gone.add(arn)
            self._answered.add(arn)
        if not ends:
            raise StreamGoneError("none of the streams is there any more")
        return start if ends == starts else {_STREAMS: dict(sorted(ends.items()))}

    def partitions(self, start: OffsetJson, end: OffsetJson) -> Sequence[InputPartition]:
        """Returns the ranges of a micro-batch of each stream."""
        starts = offsets_by_stream(start)
        return [
            partition
            for arn, upto in offsets_by_stream(end).items()
            for partition in self._reader(arn, joins=False).partitions(starts.get(arn, {}), upto)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yields the rows of one task."""
        return self._make_reader(self._options).read(partition)

    def reportLatestOffset(self) -> Report | None:
        """Returns the sums of all streams, and the longest lag."""
        reports = [each.reportLatestOffset() or {} for each in self._readers.values()]
        names = sorted({name for report in reports for name in report})
        return {
            name: (max if name == "lag_seconds" else sum)(each.get(name, 0) for each in reports)
            for name in names
        } or None

    def stop(self) -> None:
        """Ends the background reading."""
        for reader in self._readers.values():
            reader.stop()

    def _find(self) -> list[str]:
        now = self._clock.monotonic()
        if self._finder is None:
            self._finder = self._make_finder(self._options)
        elif now < self._find_at or self._ends_now or not self._finder.may_find_more:
            return self._found
        self._find_at = now + self._timing.find_streams_seconds
        try:
            self._found = self._finder.find()
        except ServiceError as error:
            if not self._found:
                raise
            logger.warning(f"Can't list streams, trying again: {error}")
        return self._found

    def _moves_on(self, arn: str) -> bool:
        """True for the stream of a table that is named, or matches; not for one that is itself."""
        return arn not in wanted_streams(self._options.stream).names

    def _reader(self, arn: str, *, joins: bool) -> StreamReader:
        if arn not in self._readers:
            moves_on = self._moves_on(arn)
            options = msgspec.structs.replace(self._options, stream=arn, of_table=moves_on)
            if joins:
                logger.info(f"Another stream matches: {arn}")
                options = msgspec.structs.replace(options, start=TrimHorizon())
            reader = self._make_reader(options)
            if self._ends_now:
                reader.prepareForTriggerAvailableNow()
            self._readers[arn] = reader
        return self._readers[arn]


def offsets_by_stream(offset: OffsetJson) -> dict[str, OffsetJson]:
    """Returns each stream's offset by its ARN, also of a checkpoint that began with one stream."""
    if not offset:
        return {}
    if "shards" in offset:
        return {str(offset.get("stream")): offset}
    if not isinstance(offset.get(_STREAMS), dict):
        raise UsageError("the checkpoint's offset is not of dynamodb_streams")
    streams: dict[str, OffsetJson] = offset[_STREAMS]
    return streams
