"""Appends every change to files, partitioned by date, each exactly once."""

import logging
from typing import Annotated, Any

from cyclopts import Parameter
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import to_date
from pyspark.sql.streaming.readwriter import DataStreamWriter

from watcher.errors import UsageError
from watcher.service.connection import Connection
from watcher.spark import folders
from watcher.spark.folders import Folder
from watcher.spark.jobs import settings
from watcher.spark.jobs.run import JobTotals, changes, in_one_line, run, triggered
from watcher.spark.jobs.settings import HERE

logger = logging.getLogger("watcher")

_PARTITIONS = "date="
_OWN_FILES = "part-"
_NOTE = "watcher-archive.json"


def archive(
    stream: str,
    *,
    to: Annotated[
        str,
        Parameter(metavar="PATH", help="the folder to append to: a path or URL that Spark knows"),
    ],
    format: Annotated[  # noqa: A002
        str,
        Parameter(
            completer=lambda _: ("parquet", "json", "csv", "orc"),
            metavar="FORMAT",
            help="parquet (default), json, csv, orc, or what --packages bring",
        ),
    ] = "parquet",
    start: Annotated[
        str,
        Parameter(
            name="--from",
            metavar="START",
            help=f"where to begin without a checkpoint: {settings.PLACES}; default trim-horizon",
        ),
    ] = "trim-horizon",
    checkpoint: settings.Checkpoint = None,
    once: settings.Once = False,
    every: settings.EveryTenSeconds = None,
    max_records: settings.MaxRecords = None,
    fail_on_data_loss: settings.FailOnDataLoss = True,
    connection: Connection = HERE,
    spark: SparkSession,
) -> JobTotals:
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
    folder = Folder(spark, to)
    checkpoint = checkpoint or f"{to.rstrip('/')}/_checkpoint"
    kept = Folder(spark, checkpoint)
    with in_one_line(), folders.alone(folder, kept, _NOTE, format):
        if folder.has(folders.LOG):
            _remove_leftovers(spark, folder)
        writer = _writer(frame, format, to, checkpoint)
        writer = triggered(writer, once=once, every=every, default="10s")
        logger.info(f"Archiving {stream} to {to} as {format}")
        return run(writer.start, "archived")


def _writer(frame: DataFrame, format: str, to: str, checkpoint: str) -> DataStreamWriter:  # noqa: A002
    writer = (
        frame.writeStream.format(format)
        .partitionBy("date")
        .option("path", to)
        .option("checkpointLocation", checkpoint)
    )
    if format == "csv":
        # Images are full of quotes: doubled, as RFC 4180 and every other reader have them.
        writer = writer.option("header", "true").option("escape", '"')
    return writer


def _remove_leftovers(spark: SparkSession, folder: Folder) -> None:
    """Remove what a killed attempt has left.

    Raises UsageError where the folder has been moved: its log does not know its files then.
    """
    whole = _committed(spark, folder.path)
    found = folder.files(_PARTITIONS, _OWN_FILES)
    if elsewhere := sorted(whole - found.keys()):
        raise UsageError(
            f"{folder.path} is not as it was written: it lacks {len(elsewhere)} of its files, such "
            f"as {elsewhere[0]}; put it back to where it was, or choose another folder"
        )
    # What is older than the last batch is no attempt's that came after it, but somebody else's.
    since = folder.newest(folders.LOG)
    left = [path for path, time in found.items() if path not in whole and time >= since]
    for path in left:
        folder.remove(path)
    if left:
        logger.info(f"Removed {len(left)} files of an attempt that did not finish")


def _committed(spark: SparkSession, path: str) -> set[str]:
    """The files that the sink's log calls whole, wherever it says they are."""
    jvm: Any = spark.sparkContext._jvm
    files = spark._jsparkSession.read().format("text").load(path).inputFiles()
    return {jvm.java.net.URI(each).getPath() for each in files}
