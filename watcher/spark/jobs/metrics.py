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
from watcher.formatting.terminal import write_json, write_text
from watcher.spark.error_mapping import translating_errors
from watcher.spark.jobs import settings
from watcher.spark.jobs.run import (
    JobTotals,
    StopRequest,
    changes,
    interval,
    run,
    triggered,
)
from watcher.spark.jobs.settings import HERE
from watcher.spark.lake import Lake, lake_of

# It costs nothing but state, and a shard that can't be read for hours is still counted.
_LATE = "24h"
# In the checkpoint of windows in files: what it is the checkpoint of.
_NOTE = "watcher-metrics.json"
# Files get a window once it is final: so much later.
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
            help="how late a change may come and be counted; default 24h, 10m with --to",
        ),
    ] = None,
    start: Annotated[
        str,
        Parameter(
            name="--from",
            metavar="START",
            help=f"where to begin without a checkpoint: {settings.PLACES}; default latest",
        ),
    ] = "latest",
    checkpoint: settings.Checkpoint = None,
    once: settings.Once = False,
    every: settings.EveryTenSeconds = None,
    fail_on_data_loss: settings.FailOnDataLoss = True,
    stop_timeout: settings.StopTimeout = settings.LAST_BATCH_SECONDS,
    connection: AwsConfig = HERE,
    spark: SparkSession,
) -> JobTotals:
    """Counts changes by event name and window of their creation time, until stopped.

    On stdout a window is printed whenever its count has grown; in files it stands once, when no
    more is to come (`late` after its end by the changes' own clock). What there is up to now, and
    no more, is `count`'s work: `once` takes a checkpoint or files to go on with.
    """
    if output not in ("lines", "json"):
        raise UsageError("give lines or json", "output", output)
    if once and to is None and checkpoint is None:
        raise UsageError(
            "for windows that go on, with --to or --checkpoint; once and for all it is count, in "
            "seconds and without Spark: count STREAM --by minute,kind",
            "once",
        )
    late = late or (_LATE_FOR_FILES if to else _LATE)
    frame = changes(
        spark, stream, connection, startingPosition=start, failOnDataLoss=fail_on_data_loss
    )
    with translating_errors():
        counts = _counts(frame, interval(size, "size"), interval(late, "late"))
    with translating_errors(), ExitStack() as held:
        if to is None:
            writer = counts.writeStream.outputMode("update").foreachBatch(
                _print_json if output == "json" else _print_lines
            )
        else:
            lake = lake_of(spark, to, checkpoint)
            checkpoint = lake.kept.whole_path
            held.enter_context(lake.open(_NOTE, f"Parquet ({interval(size, 'size')} windows)"))
            writer = counts.writeStream.outputMode("append").foreachBatch(_appended(lake))
        if checkpoint is not None:
            writer = writer.option("checkpointLocation", checkpoint)
        writer = triggered(writer, once=once, every=every, default="10s")
        return run(writer.start, "counted", stop=StopRequest(), stop_timeout=stop_timeout)


def _appended(lake: Lake) -> Callable[[DataFrame, int], None]:
    def append(batch: DataFrame, number: int) -> None:
        if lake.files_of(number) is not None:
            # It was cut off, or killed, before Spark had noted that: which takes no batch that does
            # not keep the counts so far (STATE_STORE_COMMIT_VALIDATION_FAILED).
            batch.count()
            return
        batch.persist()
        try:
            # All of it, since the counts so far are kept as a batch is done.
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
    # Times as text: pyspark would turn them into local ones without a zone.
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
