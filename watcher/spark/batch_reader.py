"""The batch read: everything in retention, or between two times; a partition for each shard.

Filters that Spark pushes down (4.1 and newer) make it read less. Spark applies them all again to
the rows, so that nothing depends on them: what is skipped here would be dropped there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from watcher.aws.arns import table_name
from watcher.aws.background import BackgroundService
from watcher.aws.config import AwsConfig
from watcher.aws.connect import connect
from watcher.aws.model import AtTime, Latest, Position, Service, TrimHorizon
from watcher.clock import CLOCK, Clock
from watcher.pull import executor
from watcher.records.wire import WireRecord
from watcher.spark.compat import Filter
from watcher.spark.offsets import Range
from watcher.spark.options import SourceOptions
from watcher.spark.picklable import SparkPicklable
from watcher.spark.ranges import RangeReader
from watcher.spark.stream_finder import StreamFinder
from watcher.spark.tasks import BufferedRange, KeysOf, TaskPartition, TaskRows, no_keys
from watcher.spark.timing import TIMING, Timing
from watcher.streams.coordinator import Coordinator
from watcher.streams.lineage import RETENTION
from watcher.streams.losses import Losses

_background = partial(BackgroundService, patience=TIMING.list_again_seconds)
# Of records' times inside a shard nobody promises that they only grow.
_APART: Final = timedelta(minutes=1)
_TIME: Final = "approximate_creation_time"
_NAMES: Final = ("event_name", "shard_id", "table_name")


class PushedFilters(msgspec.Struct, frozen=True):
    """Spark's conditions for a row, as far as they save work here."""

    since: datetime | None = None
    until: datetime | None = None
    names: dict[str, frozenset[str]] = {}
    """Of some columns all values that they may have."""

    def allow(self, column: str, value: str) -> bool:
        """True where rows with this value in a column may be kept."""
        return column not in self.names or value in self.names[column]

    def keep(self, records: Sequence[WireRecord]) -> Sequence[WireRecord]:
        """Returns the records that may be kept."""
        if (wanted := self.names.get("event_name")) is None:
            return records
        return [each for each in records if each.eventName in wanted]

    def narrow(self, options: SourceOptions, now: datetime) -> SourceOptions:
        """Returns a read's options, its beginning and its end nearer to each other."""
        start, end = options.start, options.end
        if self.since is not None and self.since > now - RETENTION:
            start = _later(start, (min(self.since, now) - _APART).replace(microsecond=0))
        # One far ahead, where time ends for Python (9999-12-31 23:59:59), leaves nothing out.
        if self.until is not None and self.until < now + RETENTION:
            until = self.until + _APART
            end = until if end is None else min(end, until)
        return msgspec.structs.replace(options, start=start, end=end)


def pushed_filters(filters: Iterable[object]) -> PushedFilters:
    """Returns what Spark's filters say together."""
    since: datetime | None = None
    until: datetime | None = None
    names: dict[str, frozenset[str]] = {}
    for each in filters:
        kind, path = type(each).__name__, each.attribute if hasattr(each, "attribute") else ()
        value: Any = getattr(each, "value", None)
        match kind, path:
            case (("EqualTo" | "EqualNullSafe" | "In"), (name,)) if name in _NAMES:
                found = frozenset(value if kind == "In" else [value])
                names[name] = names.get(name, found) & found
            case _, (name,) if name == _TIME and _is_instant(value):
                if kind in ("EqualTo", "EqualNullSafe", "GreaterThan", "GreaterThanOrEqual"):
                    since = value if since is None else max(since, value)
                if kind in ("EqualTo", "EqualNullSafe", "LessThan", "LessThanOrEqual"):
                    until = value if until is None else min(until, value)
    return PushedFilters(since, until, names)


def _is_instant(value: object) -> bool:
    return isinstance(value, datetime) and value.tzinfo is not None


def _later(start: Position, time: datetime) -> Position:
    match start:
        case TrimHorizon():
            return AtTime(time)
        case AtTime(given):
            return AtTime(max(given, time))
    return start


class BatchReader(SparkPicklable, DataSourceReader):
    """The batch read: everything in retention (or between two times), a partition per shard."""

    def __init__(
        self,
        options: SourceOptions,
        schema: StructType,
        *,
        connect: Callable[[str, AwsConfig], tuple[Service, str]] = connect,
        background: Callable[[Service], Service] = _background,
        reader: Callable[[SourceOptions, str], RangeReader] = RangeReader.connected,
        keys: KeysOf = no_keys,
        clock: Clock = CLOCK,
        timing: Timing = TIMING,
    ) -> None:
        self._options = options
        self._keys = keys
        self._rows = TaskRows(options, schema, reader)
        self._connect = connect
        self._background = background
        self._clock = clock
        self._timing = timing
        self._filters = PushedFilters()

    def partitions(self) -> Sequence[InputPartition]:
        """Returns a partition for each shard that has records up to now."""
        if not self._options.table_names:
            return self._partitions(self._options.stream)
        found = StreamFinder(self._options).find()
        streams = [each for each in found if self._filters.allow("table_name", table_name(each))]
        return [each for stream in streams for each in self._partitions(stream)]

    def _partitions(self, stream: str) -> list[InputPartition]:
        now = datetime.fromtimestamp(self._clock.time(), UTC)
        options = self._filters.narrow(self._options, now)
        service, arn = self._connect(stream, options.connection)
        losses = Losses(clock=self._clock)
        coordinator = Coordinator(arn, options.start, losses=losses, clock=self._clock)
        executor.start(coordinator, service, self._clock)
        if options.start == self._options.start:  # as the user gave it
            losses.warn_if_starting_late(coordinator.listing)
        background = self._background(service)
        while True:
            coordinator.to_start()
            executor.refresh(coordinator, background)
            if coordinator.lists_all():
                break
            self._clock.sleep(self._timing.list_again_seconds)
        ranges = [
            Range(
                shard.id,
                shard.position,
                closed=coordinator.is_closed(shard.id),
                catch_up_after=coordinator.written_at,
                end=options.end,
            )
            for shard in coordinator.lineage.unfinished
            if not isinstance(shard.position, Latest) and self._filters.allow("shard_id", shard.id)
        ]
        keys = self._keys(options.connection, arn) if ranges else None
        return [TaskPartition(arn, [BufferedRange(each)], keys) for each in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yields the rows of one shard."""
        return self._rows.read(partition, self._filters.keep)


class FilteringReader(BatchReader):
    """The batch read of a session that pushes filters down; another refuses a reader that can."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Skips what they exclude, as far as it can be told; Spark applies all of them again."""
        self._filters = pushed_filters(filters)
        return filters
