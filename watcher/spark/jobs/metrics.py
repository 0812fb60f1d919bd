"""Counts changes by kind and window of time."""

import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Annotated

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import window

from watcher.aws.config import AwsConfig
from watcher.declared import Parameter
from watcher.errors import UsageError
from watcher.formatting.text import write_json, write_text
from watcher.shutdown import Shutdown
from watcher.spark.error_mapping import translating_errors
from watcher.spark.jobs import settings
from watcher.spark.jobs.run import (
    JobTotals,
    changes,
    interval,
    run,
    triggered,
)
from watcher.spark.jobs.settings import HERE
from watcher.spark.lake import Lake, lake_of
from watcher.spark.timing import TIMING

# Waiting so long costs state only, and counts a shard that nobody could read for hours.
_LATE = "24h"
# In the checkpoint of windows in files: the folder and the size of the windows.
_NOTE = "watcher-metrics.json"
# Files get a window once it is final, this long after its end.
_LATE_FOR_FILES = "10m"


def metrics(  # noqa: PLR0913 (its parameters are the options)
    stream: str,
    *,
    size: Annotated[
        str,
        Parameter(
            name="--window", metavar="TIME", help="how long a window is: 10s, 1m (default), 1h"
        ),
    ] = "1m",
    output: Annotated[
        str,
        Parameter(
            alias="-o",
            choices=("lines", "json"),
            metavar="FORMAT",
            help="lines (default) or json on stdout, as the counts grow",
        ),
    ] = "lines",
    to: Annotated[
        str | None,
        Parameter(metavar="PATH", help="append final windows to Parquet files here instead"),
    ] = None,
    late: Annotated[
        str | None,
        Parameter(
            metavar="TIME",
            help="count changes that come up to this late; default 24h, 10m with --to",
        ),
    ] = None,
    start: Annotated[str, settings.start_option("latest")] = "latest",
    checkpoint: settings.Checkpoint = None,
    once: settings.Once = False,
    every: settings.EveryTenSeconds = None,
    fail_on_data_loss: settings.FailOnDataLoss = True,
    stop_timeout: settings.StopTimeout = TIMING.last_batch_seconds,
    connection: AwsConfig = HERE,
    spark: SparkSession,
) -> JobTotals:
    """Counts changes by event name and window of their creation time, until stopped.

    The job prints a window whenever its count has grown; to files it writes each window once, when
    it is final (`late` after its end by the changes' own clock). `once` takes a checkpoint or
    files to resume from: the `count` command counts what is in the stream now, without Spark.
    """
    if output not in ("lines", "json"):
        raise UsageError("give lines or json", "output", output)
    if once and to is None and checkpoint is None:
        raise UsageError(
            "give --to or --checkpoint as well, to resume from; for the changes up to now, count "
            "takes seconds and no Spark: count STREAM --by minute,kind",
            "once",
        )
    window_size = interval(size, "size")
    lateness = interval(late or (_LATE_FOR_FILES if to else _LATE), "late")
    records = changes(
        spark, stream, connection, startingPosition=start, failOnDataLoss=fail_on_data_loss
    )
    with translating_errors(), ExitStack() as open_lakes:
        counts = _counts(records, window_size, lateness).writeStream
        if to is None:
            print_batch = _print_json if output == "json" else _print_lines
            writer = counts.outputMode("update").foreachBatch(print_batch)
        else:
            lake = lake_of(spark, to, checkpoint)
            checkpoint = lake.checkpoint.whole_path
            open_lakes.enter_context(lake.open(_NOTE, f"Parquet ({window_size} windows)"))
            writer = counts.outputMode("append").foreachBatch(_appender(lake))
        if checkpoint is not None:
            writer = writer.option("checkpointLocation", checkpoint)
        writer = triggered(writer, once=once, every=every, default="10s")
        return run(writer.start, "counted", stop=Shutdown(stop_timeout))


def _appender(lake: Lake) -> Callable[[DataFrame, int], None]:
    def append(batch: DataFrame, number: int) -> None:
        if lake.files_of(number) is not None:
            # A kill came before Spark had noted the batch. Spark refuses to note one that does not
            # commit its state (STATE_STORE_COMMIT_VALIDATION_FAILED): so its rows are read again.
            batch.count()
            return
        batch.persist()
        try:
            # Reads every partition: each commits its part of Spark's state.
            lake.append(lambda path: _write(batch, path) if batch.count() else None, number)
        finally:
            batch.unpersist()

    return append


def _write(batch: DataFrame, path: str) -> None:
    batch.coalesce(1).write.mode("overwrite").parquet(path)


def _counts(frame: DataFrame, size: str, late: str) -> DataFrame:
    when = "approximate_creation_time"
    grouped = frame.withWatermark(when, late).groupBy(window(when, size), "event_name").count()
    return grouped.selectExpr("window.start start", "window.end end", "event_name", "count")


def _rows(batch: DataFrame) -> list[tuple[str, str, str, int]]:
    # pyspark turns timestamps into local times without a zone; text keeps them.
    start, end = (f"date_format({name}, \"yyyy-MM-dd'T'HH:mm:ssXXX\")" for name in ("start", "end"))
    texts = batch.selectExpr(start, end, "event_name", "count")
    return sorted(tuple(row) for row in texts.collect())


def _print_json(batch: DataFrame, number: int) -> None:
    for start, end, name, count in _rows(batch):
        row = {"start": start, "end": end, "event_name": name, "count": count}
        write_json(msgspec.json.encode(row).decode() + "\n")
    sys.stdout.flush()


def _print_lines(batch: DataFrame, number: int) -> None:
    for start, _, name, count in _rows(batch):
        write_text(f"{start}  {name:<6}  {count}\n")
    sys.stdout.flush()
