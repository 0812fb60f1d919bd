"""Calls handlers on the executors, per shard in order, at least once."""

from __future__ import annotations

import contextlib
import logging
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from watcher.aws.config import AwsConfig
from watcher.aws.connect import connect
from watcher.delivery.failures import FailurePolicy
from watcher.delivery.handler import Handler
from watcher.errors import WatcherError
from watcher.files import temporary_folder
from watcher.records.filters import RecordFilter
from watcher.records.redaction import Redaction
from watcher.shutdown import SHUTDOWN_TIMING, Shutdown
from watcher.spark import handlers_sink
from watcher.spark.error_mapping import translating_errors
from watcher.spark.jobs.run import JobTotals, changes, run, triggered
from watcher.spark.jobs.settings import HERE
from watcher.spark.options import wanted_streams
from watcher.spark.timing import TIMING, Timing

logger = logging.getLogger("watcher")


def watch(  # noqa: PLR0913 (its parameters are the options)
    stream: str,
    load: Callable[[], list[Handler]],
    *,
    test: RecordFilter | None = None,
    redaction: Redaction | None = None,
    start: str = "latest",
    snapshot: bool = False,
    checkpoint: str | None = None,
    once: bool = False,
    on_error: str | None = None,
    fail_on_data_loss: bool = False,
    stop_timeout: float = SHUTDOWN_TIMING.stop_seconds,
    connection: AwsConfig = HERE,
    spark: SparkSession,
) -> JobTotals:
    """Hands every change to the handlers that `load` makes, in each executor's processes.

    `stream` may name several, with commas between them. The handlers get the records that pass the
    `test`, redacted. A `snapshot` is the table's items, as a new query's first batch.

    The job prints what the handlers print, batch by batch. After a crash it delivers a whole batch
    again. Each process has its own handlers, with their own state, and calls `close` at the end;
    Spark ends a process that was idle for a minute without calling it. `on_error` is that of a
    watch: with a checkpoint, the job retries a failed record forever.

    Raises HandlerError under `on_error="stop"`, and what the source raises.
    """
    if on_error is None:
        on_error = "retry" if checkpoint else "log"
    # Checks here what only an executor would find out.
    policy = FailurePolicy.parse(on_error, AwsConfig(connection.region, connection.profile))
    if not wanted_streams(stream).are_several:
        connect(stream, connection)
    stop = Shutdown(stop_timeout)
    printer = handlers_sink.Printer(stop.request)
    task = handlers_sink.HandlersTask(
        load,
        policy,
        sys.stdout.isatty(),
        printer.address,
        printer.authkey,
        test,
        redaction,
    )
    handlers_sink.register(spark, task)
    records = changes(
        spark,
        stream,
        connection,
        startingPosition=None if snapshot else start,
        snapshot=snapshot,
        wireRecords=True,
        columns="event_source_arn,shard_id,record",
        failOnDataLoss=fail_on_data_loss,
    )
    with tempfile.TemporaryDirectory(
        prefix="watcher-", dir=temporary_folder(), ignore_cleanup_errors=True
    ) as folder:
        # Spark needs one in any case; without the user's it is for this run only.
        location = checkpoint or Path(folder).as_uri()
        writer = records.writeStream.format(handlers_sink.FORMAT)
        writer = writer.option("checkpointLocation", location)
        writer = triggered(writer, once=once, every=None)
        try:
            totals = run(writer.start, "delivered", stop=stop)
        except WatcherError as error:
            with contextlib.suppress(WatcherError):
                close_handlers(spark, stop)
            raise printer.error or error from None
        totals.unhandled = printer.unhandled
        if totals.batches or totals.is_cut:  # before the first one nothing has loaded them
            close_handlers(spark, stop)
        return totals


def close_handlers(spark: SparkSession, stop: Shutdown, timing: Timing = TIMING) -> None:
    """Closes the handlers in each process, unless Spark's JVM has ended.

    After a signal they have the rest of `stop.timeout`, and at least `least_close_seconds`.
    """
    at_most = max(stop.seconds_left, timing.least_close_seconds) if stop.signal else None
    try:
        with _cancelled(spark, at_most, timing) as is_late, translating_errors():
            handlers_sink.close(spark)
    except WatcherError:
        if not is_late.is_set():
            raise
        logger.warning(
            f"Handlers were not closed: that took longer than --stop-timeout ({stop.timeout:g} s)"
        )
    except (Py4JError, OSError) as error:
        logger.debug(f"Handlers were not closed: {error}")


@contextlib.contextmanager
def _cancelled(
    spark: SparkSession, seconds: float | None, timing: Timing
) -> Iterator[threading.Event]:
    """Cancels Spark's work within the block after so many seconds, and sets the event."""
    is_over, is_late = threading.Event(), threading.Event()

    def cancel() -> None:
        if is_over.wait(seconds):
            return
        is_late.set()
        while not is_over.wait(timing.cancel_again_seconds):  # work may begin after the first call
            with contextlib.suppress(Py4JError, OSError):
                spark.sparkContext.cancelAllJobs()

    if seconds is not None:
        threading.Thread(target=cancel, daemon=True).start()
    try:
        yield is_late
    finally:
        is_over.set()
