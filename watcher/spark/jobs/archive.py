"""Appends every change to files, partitioned by date, each exactly once."""

import logging
from collections.abc import Sequence
from typing import Annotated

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql.functions import count, to_date

from watcher.aws.config import AwsConfig
from watcher.declared import Parameter
from watcher.errors import UsageError
from watcher.formatting.text import counted
from watcher.records.typed_values import RESCUED
from watcher.spark.error_mapping import translating_errors
from watcher.spark.jobs import settings
from watcher.spark.jobs.run import JobTotals, StopRequest, changes, run, triggered
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
    dynamodb_json: Annotated[
        bool, Parameter(help="images in DynamoDB's JSON, with all types")
    ] = False,
    image_schema: settings.ImageSchema = None,
    checkpoint: settings.Checkpoint = None,
    once: settings.Once = False,
    every: settings.EveryTenSeconds = None,
    max_records: settings.MaxRecords = None,
    fail_on_data_loss: settings.FailOnDataLoss = True,
    stop_timeout: settings.StopTimeout = settings.LAST_BATCH_SECONDS,
    redact: Sequence[str] | None = None,
    redact_file: str | None = None,
    redact_key_file: str | None = None,
    connection: AwsConfig = HERE,
    spark: SparkSession,
) -> JobTotals:
    """Appends every change to `to`, in folders by date (UTC), until stopped.

    Nothing is in `to` but whole files, each change exactly once across crashes. On a disk, each
    day's small ones become big ones when a batch has only changes of later days. The checkpoint
    (default: `TO.checkpoint`, beside it) is where the job goes on.

    Raises UsageError, and whatever the source raises.
    """
    redacted = settings.redacted(redact, redact_file, redact_key_file)
    settings.refuse_bad_schema(image_schema, stream, connection)
    if image_schema is not None and (dynamodb_json or format == "csv"):
        other = "--dynamodb-json" if dynamodb_json else "--format csv"
        raise UsageError(f"--image-schema and {other} exclude each other")
    frame = changes(
        spark,
        stream,
        connection,
        startingPosition=start,
        imageFormat="dynamodb-json" if dynamodb_json else None,
        imageSchema=image_schema,
        rescuedData=None if image_schema is None else "all",
        maxRecordsPerTrigger=max_records,
        failOnDataLoss=fail_on_data_loss,
        **redacted,
    ).withColumn("date", to_date("approximate_creation_time"))
    if format == "csv":  # which knows no structs
        frame = frame.withColumn("user_identity", frame["user_identity"]["principal_id"])
    lake = lake_of(spark, to, checkpoint)
    content = f"{format} (DynamoDB's JSON)" if dynamodb_json else format
    stop = StopRequest()
    batches = _Batches(lake, format, stop)
    with translating_errors(), lake.open(_NOTE, content, by_spark=format not in _FILES):
        if format in _FILES:
            writer = frame.writeStream.foreachBatch(batches.append)
        else:
            writer = frame.writeStream.format(format).partitionBy("date").option("path", to)
        writer = writer.option("checkpointLocation", lake.kept.whole_path)
        writer = triggered(writer, once=once, every=every, default="10s")
        logger.info(f"Archiving {stream} to {to} as {format}")
        try:
            return run(
                writer.start,
                "archived",
                stop=stop,
                stop_timeout=stop_timeout,
                uncounted=batches.uncounted,
            )
        finally:
            batches.log_rescued()


class _Batches:
    """Appends micro-batches to the archive's files, each once."""

    def __init__(self, lake: Lake, format: str, stop: StopRequest) -> None:  # noqa: A002
        self._lake = lake
        self._format = format
        self._stop = stop
        self._rescued = 0
        self.uncounted: dict[int, int] = {}
        """The changes of batches that were in already, which Spark does not count."""

    def append(self, batch: DataFrame, number: int) -> None:
        """Appends one."""
        lake, files_format = self._lake, self._format
        if (there := lake.files_of(number)) is not None:
            # Spark does not read its changes any more, and no run has counted them.
            files = [lake.folder.literal(each) for each in there]
            self.uncounted[number] = count_rows(batch, files_format, files)
            return
        seen = Observation() if RESCUED in batch.columns else None
        if seen is not None:
            batch = batch.observe(seen, count(RESCUED).alias("rows"))
        files = lake.append(lambda path: _write(batch, files_format, path), number)
        if seen is not None and files:
            self._rescued += seen.get["rows"]
        if files_format == "parquet":
            # Not once a signal has come: the batch is in, and is to be done and counted soon.
            lake.compact(files, lambda: not self._stop.signal)

    def log_rescued(self) -> None:
        """Logs how many changes have something that typed images do not hold."""
        if self._rescued:
            what = counted(self._rescued, "change")
            logger.info(f"{what} with what --image-schema does not hold: {RESCUED}")


def _write(batch: DataFrame, format: str, path: str) -> None:  # noqa: A002
    writer = batch.write.format(format).partitionBy("date").mode("overwrite")
    writer.options(**_options(format)).save(path)


def _options(format: str) -> dict[str, str]:  # noqa: A002
    # Images are full of quotes: doubled, as RFC 4180 and every other reader have them.
    return {"header": "true", "escape": '"'} if format == "csv" else {}


def count_rows(batch: DataFrame, format: str, files: list[str]) -> int:  # noqa: A002
    """Returns how many rows are in files that `batch` was written to."""
    reader = batch.sparkSession.read.format(format).options(**_options(format))
    return reader.schema(batch.schema).load(files).count() if files else 0
