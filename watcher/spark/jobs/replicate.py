"""Keeps another DynamoDB table equal to the stream's: copies its items, then applies changes."""

import functools
import logging
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Annotated

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType

from watcher.aws.config import AwsConfig
from watcher.aws.connect import connect
from watcher.aws.model import CLOCKS_APART, Listing
from watcher.aws.retry import retry_at_start
from watcher.aws.tables import BATCH, Description, TablesClient, Write, for_task, tables
from watcher.declared import Opt
from watcher.errors import StreamError, UsageError, without_passwords
from watcher.records.diff import key_of
from watcher.records.record import wire_item
from watcher.shutdown import Shutdown
from watcher.spark.error_mapping import translating_errors
from watcher.spark.folders import Folder
from watcher.spark.jobs import settings
from watcher.spark.jobs.run import (
    JobTotals,
    changes,
    new_stop_file,
    run,
    stopped_by_signals,
    triggered,
)
from watcher.spark.jobs.settings import HERE, refuse_speculation
from watcher.streams.lineage import RETENTION

logger = logging.getLogger("watcher")

_COPY_FILE = "watcher-copy.json"
_TARGET_FILE = "watcher-target.json"
_WARN_AFTER = timedelta(hours=18)
# A crash repeats a whole segment of the scan: some minutes of it.
_SEGMENT_BYTES = 128 * 1024 * 1024
_SEGMENTS_MAX = 10_000


class Copy(msgspec.Struct):
    """The progress of the copy of the items; stored in the checkpoint."""

    stream: str
    started: datetime
    """The time from which the stream is read once the copy is done."""
    segments: int
    done: list[int]

    @property
    def is_whole(self) -> bool:
        """True once every item was copied."""
        return len(self.done) == self.segments


class Target(msgspec.Struct, frozen=True):
    """The table that a checkpoint is for; stored in it."""

    table: str
    endpoint: str
    """The client's endpoint, by options or the environment; the region is in it."""
    identity: str | None = None
    """The table's identity (see Description); None in an older version's checkpoint."""

    def __str__(self) -> str:
        return f"{self.table} ({self.endpoint})"


class CopyWork(msgspec.Struct, frozen=True):
    """The work of an executor that copies a part of the table."""

    source: str
    source_connection: AwsConfig
    target: str
    target_connection: AwsConfig
    segments: int


def replicate(  # noqa: PLR0913 (its parameters are the options)
    stream: str,
    *,
    to: Annotated[str, Opt("the table to keep equal", "TABLE")],
    checkpoint: Annotated[str, Opt("save progress here, to resume after a crash", "PATH")],
    to_region: Annotated[str | None, Opt("its region; default the stream's", "REGION")] = None,
    to_endpoint_url: Annotated[
        str | None, Opt("its endpoint; default the stream's, without --to-region", "URL")
    ] = None,
    create: Annotated[bool, Opt("create the table, with the same keys")] = False,
    changes_only: Annotated[bool, Opt("skip the copy of the items")] = False,
    start: Annotated[
        str | None,
        settings.start_option(
            "trim-horizon", text="with --changes-only: where to begin without a checkpoint"
        ),
    ] = None,
    once: settings.Once = False,
    every: settings.Every = None,
    max_records: settings.MaxRecords = None,
    fail_on_data_loss: settings.FailOnDataLoss = True,
    stop_timeout: settings.StopTimeout = settings.STOP_SECONDS,
    connection: AwsConfig = HERE,
    spark: SparkSession,
) -> JobTotals:
    """Copies the table's items, then applies every change, until stopped.

    The stream's position is fixed before the copy begins, so no change falls in between; `start`
    is only for `changes_only`. After a kill at any time, a start on the same checkpoint goes on.

    Raises UsageError, StreamError (a stream without new images), and what the source raises.
    """
    refuse_speculation(spark)
    streams, arn = connect(stream, connection)
    listing = retry_at_start(lambda: streams.list_shards(arn))
    _refuse_without_images(listing)
    own = msgspec.structs.replace(connection, region=connection.region or streams.region)
    others = AwsConfig(
        to_region or own.region,
        connection.profile,
        to_endpoint_url or (None if to_region else connection.endpoint_url),
    )
    folder = Folder(spark, checkpoint)
    source = tables(own).named(streams.table(arn))[0]
    _bind_target(folder, tables(own), tables(others), source=source, to=to, create=create)
    stop = Shutdown(stop_timeout)
    if not changes_only:
        if start is not None:
            text = "--from is only for --changes-only: a copy's changes count from its beginning on"
            logger.warning(text)
        copied = _copy(
            spark,
            folder,
            arn=arn,
            now=listing.time - CLOCKS_APART,
            work=CopyWork(source, own, to, others, 0),
            stop=stop,
        )
        if copied is None:
            return JobTotals(signal=stop.signal)
        start = copied.isoformat()
    stop_file = new_stop_file()
    frame = changes(
        spark,
        arn,
        connection,
        startingPosition=start or "trim-horizon",
        imageFormat="dynamodb-json",
        maxRecordsPerTrigger=max_records,
        failOnDataLoss=fail_on_data_loss,
        stopFile=str(stop_file),
    )
    writer = _replica_writer(spark, frame, to, others)
    writer = writer.option("checkpointLocation", f"{checkpoint.rstrip('/')}/changes")
    logger.info(f"Applying the changes of {listing.table} to {to}")
    start_query = triggered(writer, once=once, every=every).start
    return run(start_query, "applied", stop=stop, stop_file=stop_file)


def _replica_writer(
    spark: SparkSession, frame: DataFrame, table: str, connection: AwsConfig
) -> DataStreamWriter:
    spark.dataSource.register(DynamoDBReplica)
    options = {
        "table": table,
        "region": connection.region,
        "profile": connection.profile,
        "endpointUrl": connection.endpoint_url,
    }
    given = {name: value for name, value in options.items() if value is not None}
    images = frame.select("event_name", "keys", "new_image")
    return images.writeStream.format("dynamodb_replica").options(**given)


def _refuse_without_images(listing: Listing) -> None:
    if "NEW" not in listing.view_type:
        raise StreamError(
            f"the stream of {listing.table} carries no new images ({listing.view_type}): "
            "a replica needs StreamViewType NEW_IMAGE or NEW_AND_OLD_IMAGES"
        )


# The target


def _bind_target(
    checkpoint: Folder,
    here: TablesClient,
    there: TablesClient,
    *,
    source: str,
    to: str,
    create: bool,
) -> None:
    """Binds the checkpoint to the target table, and creates that where it may.

    Raises UsageError where the checkpoint is of another table, or the table can't be a replica.
    """
    target = Target(to, there.endpoint)
    known = _known_target(checkpoint, target)
    identity = _prepare(here, there, table=source, asked=target, known=known, create=create)
    checkpoint.save(_TARGET_FILE, msgspec.structs.replace(target, identity=identity))


def _known_target(checkpoint: Folder, target: Target) -> Target:
    """Returns the target as the checkpoint has it; `target` itself in a new one.

    Raises UsageError for another table, which lacks what was copied and applied to the first.
    """
    known = checkpoint.load(_TARGET_FILE, Target)
    if known is None:
        return target  # a new checkpoint, or one from before this was stored
    if (known.table, without_passwords(known.endpoint)) != (target.table, target.endpoint):
        raise UsageError(
            f"the checkpoint {checkpoint.path} belongs to the copy in {known}, not in {target}: "
            "choose another --checkpoint, or give that table"
        )
    return known


def _prepare(
    here: TablesClient,
    there: TablesClient,
    *,
    table: str,
    asked: Target,
    known: Target,
    create: bool,
) -> str:
    """Returns the target table's identity. Raises UsageError where it can't be a replica."""
    to = asked.table
    source = here.describe(table)
    if source is None:
        raise StreamError(f"table {table} is gone: its stream can't be replicated")
    target = there.describe(to)
    # By what it is: an endpoint has several names.
    if target is not None and target.identity == source.identity:
        raise UsageError(f"{to} is the stream's own table: choose another", "to")
    if known.identity is not None and (target is None or target.identity != known.identity):
        raise UsageError(
            f"{to} was deleted and created again since the checkpoint began; start again with "
            "another --checkpoint"
        )
    if target is None:
        if not create:
            raise UsageError(f"no table {to}: create it, or give --create", "to")
        target = there.create(to, source)
        logger.info(f"Created table {to}")
    elif target.key_types != source.key_types:
        raise UsageError(f"{to} has other keys than {table}: {_keys(target)}, not {_keys(source)}")
    return target.identity


def _keys(table: Description) -> str:
    return ", ".join(f"{name} ({kind} {role})" for name, role, kind in table.key_types)


# The copy


def _copy(
    spark: SparkSession,
    checkpoint: Folder,
    *,
    arn: str,
    now: datetime,
    work: CopyWork,
    stop: Shutdown,
) -> datetime | None:
    """Copies the items that are not copied yet.

    Returns the time from which on the stream's changes count; None if the job was stopped.
    """
    copy = checkpoint.load(_COPY_FILE, Copy)
    if copy is not None and copy.stream != arn:
        raise UsageError(
            f"{checkpoint.path} belongs to {copy.stream}, not to {arn}: choose another"
        )
    if copy is None:
        parallelism = spark.sparkContext.defaultParallelism
        described = tables(work.source_connection).describe(work.source)
        size = described.size if described else 0
        segments = min(max(4 * parallelism, size // _SEGMENT_BYTES), _SEGMENTS_MAX)
        copy = Copy(arn, now, segments, [])
        # Stored before the first item is read: a change from here on is in the stream.
        checkpoint.save(_COPY_FILE, copy)
    if not copy.is_whole:
        _refuse_too_old(copy, now)
        with stopped_by_signals(stop), translating_errors():
            work = msgspec.structs.replace(work, segments=copy.segments)
            _copy_segments(spark, checkpoint, copy, work, stop)
        if stop.requested:
            return None
    if not Folder(spark, f"{checkpoint.path}/changes").has("offsets"):
        _refuse_too_old(copy, datetime.now(UTC))
    return copy.started


def _copy_segments(
    spark: SparkSession, checkpoint: Folder, copy: Copy, work: CopyWork, stop: Shutdown
) -> None:
    """Copies some segments at a time, and notes them: a start after a crash leaves them out."""
    left = sorted(set(range(copy.segments)) - set(copy.done))
    at_once = 2 * spark.sparkContext.defaultParallelism
    items = 0
    warned = False
    while left and not stop.requested:
        part, left = left[:at_once], left[at_once:]
        counts = spark.sparkContext.parallelize(part, len(part)).map(
            functools.partial(copy_segment, work)
        )
        items += sum(counts.collect())
        copy.done.extend(part)
        checkpoint.save(_COPY_FILE, copy)
        logger.info(f"copied: {items} items, {len(copy.done)} of {copy.segments} parts")
        if not warned and datetime.now(UTC) - copy.started > _WARN_AFTER:
            warned = True
            logger.warning("The copy nears the stream's retention of 24 hours")


def _refuse_too_old(copy: Copy, now: datetime) -> None:
    """Raises StreamError where changes made during the copy have left the stream by now."""
    if now - copy.started > RETENTION:
        began = copy.started.isoformat(timespec="seconds")
        raise StreamError(
            f"the copy began {began}, before the stream's 24 hours: "
            "start again with another --checkpoint"
        )


def copy_segment(work: CopyWork, segment: int) -> int:
    """Copies a part of the table, on an executor; returns the number of its items."""
    source, target = for_task(work.source_connection), for_task(work.target_connection)
    count = 0
    for items in source.scan(work.source, segment, work.segments):
        for first in range(0, len(items), BATCH):
            part = items[first : first + BATCH]
            target.write(work.target, [{"PutRequest": {"Item": wire_item(item)}} for item in part])
        count += len(items)
    return count


# The changes


class ReplicaWriter(DataSourceStreamArrowWriter):
    """Writes a micro-batch's changes to a table.

    A shard's changes are in one partition, in order, and its parent's before them, there or in a
    batch before; so each item ends as its last change left it, however often a batch is done again.
    """

    def __init__(self, table: str, connection: AwsConfig) -> None:
        self._table = table
        self._connection = connection

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Writes one partition."""
        client = for_task(self._connection)
        for batch in iterator:
            names = batch.column("event_name").to_pylist()
            keys = batch.column("keys").to_pylist()
            images = batch.column("new_image").to_pylist()
            self._apply(client, last_writes(names, keys, images))
        return WriterCommitMessage()

    def _apply(self, client: TablesClient, writes: list[Write]) -> None:
        for first in range(0, len(writes), BATCH):
            client.write(self._table, writes[first : first + BATCH])


def last_writes(names: list[str], keys: list[str], images: list[str | None]) -> list[Write]:
    """Returns each item's last change as a write: no request may name an item twice."""
    last: dict[str, tuple[str, str | None]] = {}
    for name, key, image in zip(names, keys, images, strict=True):
        last[_key_text(key)] = (key, None if name == "REMOVE" else image)
    return [_write(key, image) for key, image in last.values()]


def _key_text(key: str) -> str:
    """Returns a key's text, whatever the order of its two attributes."""
    return msgspec.json.encode(key_of(key.encode()), order="sorted").decode()


def _write(key: str, image: str | None) -> Write:
    if image is None:
        return {"DeleteRequest": {"Key": wire_item(key.encode())}}
    return {"PutRequest": {"Item": wire_item(image.encode())}}


class DynamoDBReplica(DataSource):
    """A table that follows another one."""

    @classmethod
    def name(cls) -> str:
        """Returns what goes into `format(…)`."""
        return "dynamodb_replica"

    def streamWriter(self, schema: StructType, overwrite: bool) -> ReplicaWriter:
        """Returns the writer; options are `table`, `region`, `endpointUrl` and `profile`."""
        get = self.options.get
        connection = AwsConfig(get("region"), get("profile"), get("endpointUrl"))
        return ReplicaWriter(self.options["table"], connection)
