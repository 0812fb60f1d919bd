"""Appends every change to files, partitioned by date, each exactly once."""

from __future__ import annotations

import logging
from typing import Annotated, Any

from pyspark.sql import SparkSession
from pyspark.sql.functions import to_date

from watcher.errors import UsageError
from watcher.flag import Flag
from watcher.spark.folder import Folder
from watcher.spark.jobs import settings
from watcher.spark.jobs.running import Totals, changes, in_one_line, run, triggered
from watcher.spark.jobs.settings import HERE
from watcher.streams import Connection

logger = logging.getLogger("watcher")

# Where Spark's file sink notes which files are whole; readers other than Spark don't look there.
_LOG = "_spark_metadata"
_OWN_FILES = "part-"


def archive(
    stream: str,
    *,
    to: Annotated[str, Flag("PATH", "the folder to append to: a path or URL that Spark knows")],
    format: Annotated[  # noqa: A002
        str,
        Flag(
            "FORMAT",
            "parquet (default), json, csv, orc, or what --packages bring",
            values=("parquet", "json", "csv", "orc"),
        ),
    ] = "parquet",
    start: settings.Start = "trim-horizon",
    checkpoint: settings.Checkpoint = None,
    once: settings.Once = False,
    every: settings.EveryTenSeconds = None,
    max_records: settings.MaxRecords = None,
    fail_on_data_loss: settings.FailOnDataLoss = True,
    connection: Connection = HERE,
    spark: SparkSession,
) -> Totals:
    """Append every change to `to`, in folders by date (UTC), until stopped.

    The checkpoint (default: `_checkpoint` inside `to`) makes it exactly once across crashes: what
    an attempt that was killed has left behind is removed at the next start.

    Raises UsageError, and whatever the source raises.
    """
    frame = changes(
        spark,
        stream,
        connection,
        startingPosition=start,
        maxRecordsPerTrigger=max_records,
        failOnDataLoss=fail_on_data_loss,
    ).withColumn("date", to_date("approximate_creation_time"))
    if format == "csv":  # which knows no structs
        frame = frame.withColumn("user_identity", frame["user_identity"]["principal_id"])
    place = Folder(spark, to)
    checkpoint = checkpoint or f"{to.rstrip('/')}/_checkpoint"
    with in_one_line():
        _put_in_order(spark, place, checkpoint)
    writer = (
        frame.writeStream.format(format)
        .partitionBy("date")
        .option("path", to)
        .option("checkpointLocation", checkpoint)
    )
    if format == "csv":
        # Images are full of quotes: doubled, as RFC 4180 and every other reader have them.
        writer = writer.option("header", "true").option("escape", '"')
    writer = triggered(writer, once=once, every=every, default="10s")
    logger.info(f"Archiving {stream} to {to} as {format}")
    return run(writer.start, "archived")


def _put_in_order(spark: SparkSession, place: Folder, checkpoint: str) -> None:
    """Remove what a killed attempt has left. Raises UsageError for another checkpoint's folder."""
    if not place.has(_LOG):
        return
    if not Folder(spark, checkpoint).has("offsets"):
        # Spark would count from 0 again, and skip what it takes for written.
        raise UsageError(
            f"{place.path} was written with another checkpoint than {checkpoint}: "
            "give that one, or choose another folder"
        )
    whole = _committed(spark, place.path)
    left = {name: path for name, path in place.files(_OWN_FILES).items() if name not in whole}
    for path in left.values():
        place.remove(path)
    if left:
        logger.info(f"Removed {len(left)} files of an attempt that did not finish")


def _committed(spark: SparkSession, path: str) -> set[str]:
    """The files that the sink's log calls whole."""
    jvm: Any = spark.sparkContext._jvm
    files = spark._jsparkSession.read().format("text").load(path).inputFiles()
    return {jvm.java.net.URI(each).getPath() for each in files}
