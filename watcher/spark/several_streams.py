"""Several streams in one read: which they are, and their streaming read as one source."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from watcher.aws.arns import region_in, table_name, table_of
from watcher.aws.client import StreamsClient
from watcher.aws.connect import connect
from watcher.aws.model import StreamName, TrimHorizon
from watcher.clock import CLOCK, Clock
from watcher.errors import ServiceError, StreamGoneError, UsageError
from watcher.spark.compat import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from watcher.spark.offsets import OffsetJson
from watcher.spark.options import REMEDY, SourceOptions, wanted_streams
from watcher.spark.picklable import SparkPicklable
from watcher.spark.planner import Report
from watcher.spark.stream_reader import StreamReader
from watcher.spark.timing import TIMING, Timing

logger = logging.getLogger("watcher")

_STREAMS = "streams"


class StreamFinder:
    """Finds the streams that the `stream` option means: names and globs, with commas between."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._wanted = wanted_streams(options.stream)
        self._named: list[str] | None = None

    @property
    def may_find_more(self) -> bool:
        """True where others may come to match."""
        return bool(self._wanted.globs)

    def find(self) -> list[str]:
        """Returns their ARNs. Raises StreamError where a name has none, or a glob has no match."""
        connection = self._options.connection
        if self._named is None:
            self._named = [connect(name, connection)[1] for name in self._wanted.names]
        if not self._wanted.globs:
            return self._named
        rows: list[StreamName] = []
        for part in self._wanted.by_region():
            client = StreamsClient(connection, region_in(part.globs[0]))
            rows += part.newest(client.list_streams(), client.tags).values()
        if not self._named:
            self._wanted.refuse_without_match(rows)
        return list(dict.fromkeys([*self._named, *(row.arn for row in rows)]))


class SeveralStreamsReader(SparkPicklable, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The streaming read of several streams, each by a reader of its own.

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
        self._drop_unnamed(starts)
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
                logger.warning(f"{error}; the others continue")
                self._gone.add(arn)
            self._answered.add(arn)
        if not ends:
            raise StreamGoneError("all of the streams are gone")
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

    def _drop_unnamed(self, starts: Iterable[str]) -> None:
        """Drops the checkpoint's streams that `stream` doesn't mean, with a warning.

        Raises UsageError with `failOnDataLoss`: their unread records would be lost.
        """
        wanted = wanted_streams(self._options.stream)
        for arn in starts:
            if arn in self._gone or wanted.mean(arn):
                continue
            text = f"the checkpoint reads {table_name(arn)}, which stream does not name"
            if self._options.fail_on_data_loss:
                raise UsageError(f"{text}: name it{REMEDY} without it")
            logger.warning(f"{text}; the others continue")
            self._gone.add(arn)

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
