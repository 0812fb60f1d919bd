"""Calls handlers on the executors, per shard in order, at least once."""

from __future__ import annotations

import contextlib
import logging
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from watcher.delivery.ending import STOP_SECONDS
from watcher.delivery.observer import Observer
from watcher.delivery.on_error import OnError
from watcher.errors import WatcherError
from watcher.service.connect import connect
from watcher.service.connection import Connection
from watcher.spark import handlers_sink
from watcher.spark.jobs.run import JobTotals, changes, in_one_line, run, triggered
from watcher.spark.jobs.settings import HERE
from watcher.spark.options import wanted_streams

logger = logging.getLogger("watcher")


def observe(
    stream: str,
    load: Callable[[], list[Observer]],
    *,
    start: str = "latest",
    checkpoint: str | None = None,
    once: bool = False,
    on_error: str = "log",
    fail_on_data_loss: bool = False,
    stop_timeout: float = STOP_SECONDS,
    connection: Connection = HERE,
    spark: SparkSession,
) -> JobTotals:
    """Hand every change to the observers that `load` makes, in each executor's processes.

    `stream` may be several, with commas between them.

    What they print comes out here, batch by batch. After a crash a batch is delivered again as a
    whole; state that an observer keeps is its own process's. At the end each process that is left
    calls `close`; Spark ends processes that were idle for a minute, without a word.

    Raises ObserverError under `on_error="stop"`, and what the source raises.
    """
    OnError.parse(on_error)  # what is wrong with it is said here, not by an executor
    several = wanted_streams(stream).are_several
    arn = "" if several else connect(stream, connection)[1]
    printer = handlers_sink.Printer()
    is_terminal = sys.stdout.isatty()
    task = handlers_sink.HandlersTask(
        load, on_error, arn, is_terminal, printer.address, printer.authkey
    )
    handlers_sink.register(spark, task)
    frame = changes(
        spark,
        arn or stream,
        connection,
        startingPosition=start,
        wireRecords=True,
        failOnDataLoss=fail_on_data_loss,
    )
    with tempfile.TemporaryDirectory(prefix="watcher-", ignore_cleanup_errors=True) as folder:
        # Spark has one in any case; without ours it is of this run only.
        place = checkpoint or Path(folder).as_uri()
        writer = frame.writeStream.format(handlers_sink.FORMAT).option("checkpointLocation", place)
        writer = triggered(writer, once=once, every=None)
        try:
            totals = run(writer.start, "delivered", printer.is_closed, stop_timeout)
        except WatcherError as error:
            with contextlib.suppress(WatcherError):
                _close(spark)
            raise printer.error or error from None
        _close(spark)
        return totals


def _close(spark: SparkSession) -> None:
    """Close the handlers; not where the query has ended because Spark's JVM did."""
    try:
        with in_one_line():
            handlers_sink.close(spark)
    except (Py4JError, OSError) as error:
        logger.debug(f"Handlers were not closed: {error}")
