"""Appends every change to files, partitioned by date, each exactly once."""

import logging
from collections.abc import Sequence
from typing import Annotated

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import to_date
from pyspark.sql.streaming.readwriter import DataStreamWriter

from watcher.aws.config import AwsConfig
from watcher.declared import Opt
from watcher.shutdown import Shutdown
from watcher.spark.error_mapping import translating_errors
from watcher.spark.jobs import settings
from watcher.spark.jobs.run import JobTotals, changes, new_stop_file, run, triggered
from watcher.spark.jobs.settings import HERE
from watcher.spark.lake import Lake, lake_of

logger = logging.getLogger("watcher")

_NOTE = "watcher-archive.json"
_FILES = ("parquet", "json", "csv", "orc", "avro")
"""Formats of files that stand for themselves; tables (delta, iceberg) have their own log."""


def archive(  # noqa: PLR0913 (its parameters are the options)
    stream: str,
    *,
    to: Annotated[
        str, Opt("the folder to append to: a path, or a URL that Spark can write", "PATH")
    ],
    format: Annotated[  # noqa: A002
        str,
        Opt(
            "parquet (default), json, csv, orc, or a format from --packages",
            "FORMAT",
            completer=lambda _: ("parquet", "json", "csv", "orc"),
        ),
    ] = "parquet",
    start: Annotated[str, settings.start_option("trim-horizon")] = "trim-horizon",
    dynamodb_json: Annotated[bool, Opt("images in DynamoDB's JSON, with all types")] = False,
    checkpoint: settings.Checkpoint = None,
    once: settings.Once = False,
    every: settings.EveryTenSeconds = None,
    max_records: settings.MaxRecords = None,
    fail_on_data_loss: settings.FailOnDataLoss = True,
    stop_timeout: settings.StopTimeout = settings.STOP_SECONDS,
    redact: Sequence[str] | None = None,
    redact_file: str | None = None,
    redact_key_file: str | None = None,
    connection: AwsConfig = HERE,
    spark: SparkSession,
) -> JobTotals:
    """Appends every change to the folder `to`, by date (UTC), until stopped.

    The folder holds whole files only, with each change exactly once across crashes. The job resumes
    from the checkpoint (default: `TO.checkpoint`, beside the folder).

    Raises UsageError, and whatever the source raises.
    """
    redacted = settings.redacted(redact, redact_file, redact_key_file)
    stop_file = new_stop_file()
    records = changes(
        spark,
        stream,
        connection,
        startingPosition=start,
        imageFormat="dynamodb-json" if dynamodb_json else None,
        maxRecordsPerTrigger=max_records,
        failOnDataLoss=fail_on_data_loss,
        stopFile=str(stop_file),
        **redacted,
    )
    lake = lake_of(spark, to, checkpoint)
    content = f"{format} (DynamoDB's JSON)" if dynamodb_json else format
    stop = Shutdown(stop_timeout)
    batches = _BatchWriter(lake, format)
    with translating_errors(), lake.open(_NOTE, content):
        writer = batches.of_query(_by_date(records, format), to)
        writer = triggered(writer, once=once, every=every, default="10s")
        logger.info(f"Archiving {stream} to {to} as {format}")
        return run(
            writer.start,
            "archived",
            stop=stop,
            stop_file=stop_file,
            uncounted=batches.uncounted,
        )


def _by_date(records: DataFrame, format: str) -> DataFrame:  # noqa: A002
    """Returns the archive's rows."""
    rows = records.withColumn("date", to_date("approximate_creation_time"))
    if format == "csv":  # has no structs
        rows = rows.withColumn("user_identity", rows["user_identity"]["principal_id"])
    return rows


class _BatchWriter:
    """Appends micro-batches to the archive's files, each once."""

    def __init__(self, lake: Lake, format: str) -> None:  # noqa: A002
        self._lake = lake
        self._format = format
        self.uncounted: dict[int, int] = {}
        """The number of changes of each batch that an earlier run appended: Spark counts none."""

    def of_query(self, rows: DataFrame, to: str) -> DataStreamWriter:
        """Returns the writer of a query: tables (delta, iceberg) are written by Spark itself."""
        if self._format in _FILES:
            writer = rows.writeStream.foreachBatch(self.append)
        else:
            writer = rows.writeStream.format(self._format).partitionBy("date").option("path", to)
        return writer.option("checkpointLocation", self._lake.checkpoint.whole_path)

    def append(self, batch: DataFrame, number: int) -> None:
        """Appends a micro-batch."""
        lake, files_format = self._lake, self._format
        if (appended := lake.files_of(number)) is not None:
            # Spark does not read its changes any more, and no run has counted them.
            files = [lake.folder.literal(each) for each in appended]
            self.uncounted[number] = count_rows(batch, files_format, files)
            return
        lake.append(lambda path: _write(batch, files_format, path), number)


def _write(batch: DataFrame, format: str, path: str) -> None:  # noqa: A002
    writer = batch.write.format(format).partitionBy("date").mode("overwrite")
    writer.options(**_options(format)).save(path)


def _options(format: str) -> dict[str, str]:  # noqa: A002
    # Images are full of quotes: RFC 4180, and every reader but Spark, doubles them.
    return {"header": "true", "escape": '"'} if format == "csv" else {}


def count_rows(batch: DataFrame, format: str, files: list[str]) -> int:  # noqa: A002
    """Returns how many rows the files have that `batch` was written to."""
    reader = batch.sparkSession.read.format(format).options(**_options(format))
    return reader.schema(batch.schema).load(files).count() if files else 0
