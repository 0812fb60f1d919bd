"""Keeps another DynamoDB table equal to the stream's: copies its items, then applies changes."""

import functools
import logging
from collections.abc import Iterator
from typing import Annotated

import msgspec
import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import lit

from watcher.aws.config import AwsConfig
from watcher.aws.connect import connect
from watcher.aws.model import CLOCKS_APART
from watcher.aws.retry import first_listing
from watcher.aws.tables import BATCH, Description, TablesClient, Write, for_task
from watcher.declared import Opt
from watcher.errors import UsageError
from watcher.mirror.columns import Once
from watcher.mirror.versions import refuse_view
from watcher.records.diff import key_of
from watcher.records.record import wire_item
from watcher.shutdown import Shutdown
from watcher.spark.jobs import settings
from watcher.spark.jobs.run import (
    JobTotals,
    changes,
    new_stop_file,
    run,
    trigger,
)
from watcher.spark.jobs.settings import HERE, refuse_speculation

logger = logging.getLogger("watcher")

_COLUMNS = "event_name,keys,new_image"


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
    once: Once = False,
    every: settings.Every = None,
    max_records: settings.MaxRecords = None,
    fail_on_data_loss: settings.FailOnDataLoss = True,
    stop_timeout: settings.StopTimeout = settings.STOP_SECONDS,
    connection: AwsConfig = HERE,
    spark: SparkSession,
) -> JobTotals:
    """Copies the table's items, then applies every change, until stopped.

    The query's first micro-batch is the copy: Spark has stored the stream's position by then, so
    no change falls in between, and repeats the copy where that was cut off.

    Raises UsageError, StreamError (a stream without new images), and what the source raises.
    """
    refuse_speculation(spark)
    streams, arn = connect(stream, connection)
    listing = first_listing(streams, arn)
    refuse_view(listing.view_type, history=False)
    own = msgspec.structs.replace(connection, region=connection.region or streams.region)
    others = AwsConfig(
        to_region or own.region,
        connection.profile,
        to_endpoint_url or (None if to_region else connection.endpoint_url),
    )
    place = checkpoint.rstrip("/")
    _, source = TablesClient(own).named(streams.table(arn))
    known = _stored(spark, f"{place}/target")
    identity = _prepare(TablesClient(others), to, source, known=known, create=create)
    if known is None:
        row = spark.range(1).select(lit(identity).alias("identity"))
        row.write.mode("overwrite").json(f"{place}/target")
    stop_file = new_stop_file()
    options = {"imageFormat": "dynamodb-json", "columns": _COLUMNS}
    frame = changes(
        spark.readStream,
        arn,
        connection,
        startingPosition=(listing.time - CLOCKS_APART).isoformat(),
        maxRecordsPerTrigger=max_records,
        failOnDataLoss=fail_on_data_loss,
        stopFile=str(stop_file),
        checkpointLocation=f"{place}/changes",
        **options,
    )
    apply = functools.partial(_write, to, others)

    def write(rows: DataFrame, number: int) -> None:
        if number == 0:
            items = changes(spark.read, arn, connection, items=True, **options)
            count = sum(row.written for row in items.mapInArrow(apply, "written long").collect())
            logger.info(f"Copied {count} items of {listing.table} to {to}")
        rows.mapInArrow(apply, "written long").collect()

    writer = frame.writeStream.foreachBatch(write)
    writer = writer.option("checkpointLocation", f"{place}/changes")
    start = writer.trigger(**trigger(once=once, every=every)).start
    return run(start, "applied", stop=Shutdown(stop_timeout), stop_file=stop_file, once=once)


def _stored(spark: SparkSession, place: str) -> str | None:
    """Returns the identity of the table that a checkpoint is for; None where there is none yet."""
    try:
        rows = spark.read.schema("identity string").json(place).collect()
    except AnalysisException:
        return None
    return str(rows[0][0]) if rows else None


def _prepare(
    there: TablesClient, to: str, source: Description, *, known: str | None, create: bool
) -> str:
    """Returns the target table's identity. Raises UsageError where it can't be a replica."""
    target = there.describe(to)
    # By what it is: an endpoint has several names.
    if target is not None and target.identity == source.identity:
        raise UsageError(f"{to} is the stream's own table: choose another", "to")
    if known is not None and (target is None or target.identity != known):
        raise UsageError(
            f"the checkpoint belongs to another table than {to} is now: give that one, or another "
            "--checkpoint, which begins with a copy"
        )
    if target is None:
        if not create:
            raise UsageError(f"no table {to}: create it, or give --create", "to")
        target = there.create(to, source)
        logger.info(f"Created table {to}")
    elif target.key_types != source.key_types:
        raise UsageError(
            f"{to} has other keys than the stream's table: {_keys(target)}, not {_keys(source)}"
        )
    return target.identity


def _keys(table: Description) -> str:
    return ", ".join(f"{name} ({kind} {role})" for name, role, kind in table.key_types)


# The writes


def _write(
    table: str, connection: AwsConfig, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Writes one partition's items or changes, on an executor; yields how many.

    A shard's changes are in one partition, in order, and its parent's before them, there or in a
    batch before; so each item ends as its last change left it, however often a batch is done again.
    """
    client = for_task(connection)
    for batch in batches:
        names, keys, images = (batch[name].to_pylist() for name in _COLUMNS.split(","))
        writes = last_writes(names, keys, images)
        for first in range(0, len(writes), BATCH):
            client.write(table, writes[first : first + BATCH])
        yield pa.RecordBatch.from_pydict({"written": [len(writes)]})


def last_writes(names: list[str], keys: list[str], images: list[str | None]) -> list[Write]:
    """Returns each item's last change as a write: no request may name an item twice."""
    last: dict[str, Write] = {}
    for name, key, image in zip(names, keys, images, strict=True):
        # One text, whatever the order of the attributes and the text of a number.
        text = msgspec.json.encode(key_of(key.encode()), order="sorted").decode()
        if name == "REMOVE" or image is None:
            last[text] = {"DeleteRequest": {"Key": wire_item(key.encode())}}
        else:
            last[text] = {"PutRequest": {"Item": wire_item(image.encode())}}
    return [*last.values()]
