"""`format("dynamodb_streams")`: a table's changes as a Spark stream or a DataFrame."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import StructType

from watcher.aws.arns import table_name
from watcher.aws.background import BackgroundService
from watcher.aws.config import AwsConfig
from watcher.aws.connect import connect
from watcher.aws.credentials import Keys, handed_credentials, to_hand_on
from watcher.aws.model import Latest, Service
from watcher.clock import CLOCK, Clock
from watcher.errors import UsageError
from watcher.pull import executor
from watcher.spark import offsets, versions
from watcher.spark.export_source import DynamoDBExport
from watcher.spark.image_evolution import images_of, refuse_changed
from watcher.spark.offsets import Range
from watcher.spark.options import SourceOptions, parse
from watcher.spark.picklable import SparkPicklable
from watcher.spark.planner import Planner
from watcher.spark.pushed import Pushed, pushed
from watcher.spark.ranges import RangeReader
from watcher.spark.schema import Columns, columns, ddl
from watcher.spark.several import SeveralReader, StreamsByName
from watcher.spark.tasks import HeldRange, TaskPartition, shared
from watcher.spark.typed import refuse_unfit
from watcher.spark.versions import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from watcher.streams.coordinator import Coordinator
from watcher.streams.losses import Losses
from watcher.streams.messages import Page

_PACKAGE_PARENT = str(Path(__file__).parents[2])
# So often the coordinator is asked whether a question is due again; and one is waited for so long.
_LISTING_PAUSE = 0.25
_aside = partial(BackgroundService, patience=_LISTING_PAUSE)

KeysOf = Callable[[AwsConfig, str], Keys | None]
"""The driver's keys for a connection and a stream, where executors are to read with those."""


def _none(connection: AwsConfig, arn: str) -> None:
    """Executors have their own."""


class _Rows:
    """How a task makes its rows; `connect` makes what talks to the service, where it is used.

    It travels to the executors; sockets do not.
    """

    def __init__(
        self,
        options: SourceOptions,
        schema: StructType,
        connect: Callable[[SourceOptions, str], RangeReader],
    ) -> None:
        refuse_unfit(schema)
        arrow = versions.arrow_schema(schema)
        if arrow.names != list(columns(options)):
            raise UsageError(".schema(…) can't be given to dynamodb_streams; use imageSchema")
        self._options = options
        self._columns = Columns(options, arrow)
        self._connect = connect
        self.pushed = Pushed()

    def of(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task, shard by shard."""
        if not isinstance(partition, TaskPartition):
            return  # Spark's own, for a stream without shards
        if partition.keys is not None:
            handed_credentials(self._options.connection, partition.arn).take(partition.keys)
        for each in partition.ranges:
            for page in self._pages(partition.arn, each):
                shard_id, chosen = each.between.shard_id, self.pushed.records
                yield self._columns.batch(page, shard_id, partition.arn, chosen)

    def _pages(self, arn: str, held: HeldRange) -> Iterator[Page]:
        if held.pages is None:
            return self._connect(self._options, arn).read(held.between)
        return (each.page() for each in held.pages)


class StreamReader(SparkPicklable, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The streaming read: the planner lives in the driver, `read` runs in the executors."""

    def __init__(
        self,
        options: SourceOptions,
        schema: StructType,
        parallelism: int,
        *,
        planner: Callable[[SourceOptions], Planner] = Planner.connected,
        reader: Callable[[SourceOptions, str], RangeReader] = RangeReader.connected,
        keys: KeysOf = _none,
    ) -> None:
        self._options = options
        self._keys = keys
        self._rows = _Rows(options, schema, reader)
        self._images = images_of(options, schema)
        self._parallelism = parallelism
        self.sharers = 1
        """How many streams the same query reads, one after the other."""
        # Made at the first use: this object travels to the executors, sockets do not.
        self._make_planner = planner
        self._made_planner: Planner | None = None

    @property
    def _planner(self) -> Planner:
        if self._made_planner is None:
            self._made_planner = self._make_planner(self._options)
        self._made_planner.sharers = self.sharers
        return self._made_planner

    @property
    def arn(self) -> str:
        """The stream's."""
        return self._planner.arn

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
            return offsets.to_json(self._planner.anchor(), self._images)
        refuse_changed(begin.images, self._images)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        end = self._planner.latest(begin, most)
        return start if end is begin else offsets.to_json(end, self._images)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Lag and shards, for the query's progress."""
        return None if self._made_planner is None else self._made_planner.report()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The ranges of a micro-batch, with their pages where they were read already."""
        finish = offsets.from_json(end)
        begin = offsets.from_json(start) or (finish and offsets.begun(finish))
        if begin is None or finish is None:
            return []
        refuse_changed(finish.images, self._images)
        held = [
            HeldRange(between, self._planner.pages(between))
            for between in offsets.ranges(begin, finish)
        ]
        for each in held:
            # As of a shard that had its turn long ago, or of a micro-batch before a restart.
            if each.pages is None:
                self._planner.say_if_too_late(each.between, begin, finish)
        full = [each for each in held if each.pages != []]
        tasks = shared(full, self._parallelism, self._options.min_partitions)
        keys = self._keys(self._options.connection, finish.stream) if tasks else None
        return [TaskPartition(finish.stream, ranges, keys) for ranges in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task, shard by shard."""
        return self._rows.of(partition)

    def stop(self) -> None:
        """End the background reading."""
        if self._made_planner is not None:
            self._made_planner.stop()


class BatchReader(SparkPicklable, DataSourceReader):
    """The batch read: everything in retention (or between two times), a partition per shard."""

    def __init__(
        self,
        options: SourceOptions,
        schema: StructType,
        *,
        connect: Callable[[str, AwsConfig], tuple[Service, str]] = connect,
        asking: Callable[[Service], Service] = _aside,
        reader: Callable[[SourceOptions, str], RangeReader] = RangeReader.connected,
        keys: KeysOf = _none,
        clock: Clock = CLOCK,
    ) -> None:
        self._options = options
        self._keys = keys
        self._rows = _Rows(options, schema, reader)
        self._connect = connect
        self._asking = asking
        self._clock = clock

    def partitions(self) -> Sequence[InputPartition]:
        """One partition per shard that has records up to now."""
        if not self._options.table_names:
            return self._partitions(self._options.stream)
        found = StreamsByName(self._options).found()
        may_be = [each for each in found if self._pushed.may_be("table_name", table_name(each))]
        return [each for stream in may_be for each in self._partitions(stream)]

    @property
    def _pushed(self) -> Pushed:
        return self._rows.pushed

    def _partitions(self, stream: str) -> list[InputPartition]:
        now = datetime.fromtimestamp(self._clock.time(), UTC)
        options = self._pushed.options(self._options, now)
        service, arn = self._connect(stream, options.connection)
        losses = Losses(clock=self._clock)
        coordinator = Coordinator(arn, options.start, losses=losses, clock=self._clock)
        executor.begin(coordinator, service, self._clock)
        if options.start == self._options.start:  # what the user has asked for
            losses.say_if_begins_late(coordinator.listing)
        asking = self._asking(service)
        while True:
            coordinator.to_start()
            executor.refresh(coordinator, asking)
            if coordinator.is_whole():
                break
            self._clock.sleep(_LISTING_PAUSE)
        ranges = [
            Range(
                shard.id,
                shard.position,
                closed=coordinator.is_closed(shard.id),
                until=coordinator.written_at,
                end=options.end,
            )
            for shard in coordinator.lineage.unfinished
            if not isinstance(shard.position, Latest) and self._pushed.may_be("shard_id", shard.id)
        ]
        keys = self._keys(options.connection, arn) if ranges else None
        return [TaskPartition(arn, [HeldRange(each)], keys) for each in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one shard."""
        return self._rows.of(partition)


class FilteringReader(BatchReader):
    """The batch read of a session that hands filters down; another refuses a reader that can."""

    def pushFilters(self, filters: list[Any]) -> list[Any]:
        """Leave out what they leave out, as far as it can be told; Spark applies all of them."""
        self._rows.pushed = pushed(filters)
        return filters


class DynamoDBStreams(SparkPicklable, DataSource):
    """Changes of a DynamoDB table."""

    takes_filters: ClassVar[bool] = False
    """Whether the session hands filters down, as `register` has found it."""

    parallelism: ClassVar[int] = 2
    """How many tasks run at once, as `register` has found it."""

    @classmethod
    def name(cls) -> str:
        """What goes into `format(…)`."""
        return "dynamodb_streams"

    def schema(self) -> str:
        """The columns; they depend on `imageSchema` and `changedAttributes`."""
        given = dict(self.options.items())
        # Whether this is for a stream is not known here: both have these options.
        given.pop("endingposition", None)
        return ddl(parse(given, streaming=True))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """For `spark.readStream`."""
        options = parse(dict(self.options), streaming=True)

        def of_one(options: SourceOptions) -> StreamReader:
            return StreamReader(options, schema, self.parallelism, keys=to_hand_on)

        if not options.table_names:
            return versions.adapted(of_one(options), options.checkpoint)
        versions.refuse_several()
        return SeveralReader(options, of_one)

    def reader(self, schema: StructType) -> BatchReader:
        """For `spark.read`."""
        kind = FilteringReader if self.takes_filters else BatchReader
        return kind(parse(dict(self.options), streaming=False), schema, keys=to_hand_on)


def register(spark: SparkSession) -> None:
    """Offer `dynamodb_streams` to `spark.readStream.format(…)` and `spark.read.format(…)`.

    And `dynamodb_export`, a table's export to S3, to the latter.

    Where the package is installed for Spark's Pythons, it is found without this, too. On Spark
    Connect it has to be: the server runs it.
    """
    # A class made here travels to the planner by value, and what this session can do with it.
    what: dict[str, Any] = {"takes_filters": versions.hands_filters_down(spark)}
    if (context := versions.context_of(spark)) is not None:
        _let_workers_import_us(context)
        what["parallelism"] = context.defaultParallelism
    for source, more in ((DynamoDBStreams, what), (DynamoDBExport, {})):
        here = type(source.__name__, (source,), more)
        here.__module__ = "__main__"
        try:
            spark.dataSource.register(here)
        except PySparkException as error:
            if not versions.is_registered(error):
                raise


def _let_workers_import_us(context: Any) -> None:
    """On this machine, Spark's Python workers are this Python, and find this package.

    Spark would start the first `python3` on the PATH. On a cluster it is for its administrator
    to have watcher installed.
    """
    if not context.master.startswith("local"):
        return
    if "PYSPARK_PYTHON" not in os.environ:
        context.pythonExec = sys.executable
    paths = [_PACKAGE_PARENT, context.environment.get("PYTHONPATH", "")]
    context.environment["PYTHONPATH"] = os.pathsep.join(filter(None, dict.fromkeys(paths)))
