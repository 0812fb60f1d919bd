"""Several streams in one read: each with its own offset, and a column that names its table."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from watcher.aws.arns import region_in
from watcher.aws.client import StreamsClient
from watcher.aws.connect import connect
from watcher.aws.model import StreamName, TrimHorizon
from watcher.clock import CLOCK, Clock
from watcher.errors import ServiceError, StreamGoneError, UsageError
from watcher.spark.options import SourceOptions, wanted_streams
from watcher.spark.picklable import SparkPicklable
from watcher.spark.versions import (
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

logger = logging.getLogger("watcher")

# Listing all streams takes a call for each 100 of them.
_LOOK_SECONDS = 60.0
_STREAMS = "streams"


class StreamsByName:
    """The streams that names and globs mean by now."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._wanted = wanted_streams(options.stream)
        self._named: list[str] | None = None

    @property
    def may_find_more(self) -> bool:
        """Whether others may come to match."""
        return bool(self._wanted.globs)

    def found(self) -> list[str]:
        """Their ARNs. Raises StreamError where a name has none, or a glob has no match."""
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


class SeveralReader(SparkPicklable, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The streaming read of several streams; each is read as one on its own is.

    One that comes to match later is read from its first change on. Between streams there is no
    order. `make` makes the reader of one of them.
    """

    def __init__(
        self,
        options: SourceOptions,
        make: Callable[[SourceOptions], Any],
        *,
        finder: Callable[[SourceOptions], StreamsByName] = StreamsByName,
        clock: Clock = CLOCK,
    ) -> None:
        self._options = options
        self._make = make
        self._make_finder = finder
        self._clock = clock
        # Made at the first use: this object travels to the executors.
        self._finder: StreamsByName | None = None
        self._found: list[str] = []
        self._look_at = -math.inf
        self._readers: dict[str, Any] = {}
        self._answered: set[str] = set()
        self._gone: set[str] = set()
        self._ends_now = False

    def initialOffset(self) -> dict[str, Any]:
        """A constant, as of one stream."""
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:
        """`maxRecordsPerTrigger`."""
        limit: ReadLimit = self._make(self._options).getDefaultReadLimit()
        return limit

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the moment at which `availableNow` ends, for all of them."""
        self._ends_now = True
        for arn in self._look():
            self._reader(arn, joins=False)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next micro-batch; a limit is shared by all."""
        begun = by_stream(start)
        arns = [each for each in dict.fromkeys([*begun, *self._look()]) if each not in self._gone]
        if isinstance(limit, ReadMaxRows):
            limit = ReadMaxRows(max(1, limit.max_rows // len(arns)))
        ends = {}
        for arn in arns:
            try:
                reader = self._reader(arn, joins=bool(begun) and arn not in begun)
                reader.sharers = len(arns)
                ends[arn] = reader.latestOffset(begun.get(arn, {}), limit)
            except StreamGoneError as error:
                if arn in begun and arn not in self._answered and self._options.fail_on_data_loss:
                    raise
                logger.warning(f"{error}; the others go on")
                self._gone.add(arn)
            self._answered.add(arn)
        if not ends:
            raise StreamGoneError("none of the streams is there any more")
        return start if ends == begun else {_STREAMS: dict(sorted(ends.items()))}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The ranges of a micro-batch of each stream."""
        begun = by_stream(start)
        return [
            partition
            for arn, upto in by_stream(end).items()
            for partition in self._reader(arn, joins=False).partitions(begun.get(arn, {}), upto)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        rows: Iterator[pa.RecordBatch] = self._make(self._options).read(partition)
        return rows

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """As of one stream: the sums of all, and the longest lag."""
        reports = [each.reportLatestOffset() or {} for each in self._readers.values()]
        names = sorted({name for report in reports for name in report})
        return {
            name: (max if name == "lag_seconds" else sum)(each.get(name, 0) for each in reports)
            for name in names
        } or None

    def stop(self) -> None:
        """End the background reading."""
        for reader in self._readers.values():
            reader.stop()

    def _look(self) -> list[str]:
        now = self._clock.monotonic()
        if self._finder is None:
            self._finder = self._make_finder(self._options)
        elif now < self._look_at or self._ends_now or not self._finder.may_find_more:
            return self._found
        self._look_at = now + _LOOK_SECONDS
        try:
            self._found = self._finder.found()
        except ServiceError as error:
            if not self._found:
                raise
            logger.warning(f"Can't list streams, trying again: {error}")
        return self._found

    def _reader(self, arn: str, *, joins: bool) -> Any:
        if arn not in self._readers:
            options = msgspec.structs.replace(self._options, stream=arn)
            if joins:
                logger.info(f"Another stream matches: {arn}")
                options = msgspec.structs.replace(options, start=TrimHorizon())
            reader = self._make(options)
            if self._ends_now:
                reader.prepareForTriggerAvailableNow()
            self._readers[arn] = reader
        return self._readers[arn]


def by_stream(offset: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The offset of each stream, by its ARN; also of a checkpoint that was begun with one."""
    if not offset:
        return {}
    if "shards" in offset:
        return {str(offset.get("stream")): offset}
    if not isinstance(offset.get(_STREAMS), dict):
        raise UsageError("the checkpoint's offset is not of dynamodb_streams")
    streams: dict[str, dict[str, Any]] = offset[_STREAMS]
    return streams
