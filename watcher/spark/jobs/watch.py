"""Calls handlers on the executors, per shard in order, at least once."""

from __future__ import annotations

import contextlib
import functools
import logging
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession

from watcher.aws.config import AwsConfig
from watcher.aws.connect import connect
from watcher.aws.retry import first_listing
from watcher.delivery.failures import FailurePolicy
from watcher.delivery.handler import Handler
from watcher.errors import HandlerError, WatcherError
from watcher.files import temporary_folder
from watcher.formatting.text import none_matched
from watcher.records.filters import RecordFilter
from watcher.records.redaction import Redaction
from watcher.shutdown import STOP_SECONDS, Shutdown
from watcher.spark import handler_tasks
from watcher.spark.error_mapping import translating_errors
from watcher.spark.handler_tasks import HandlersTask
from watcher.spark.jobs.run import JobTotals, changes, new_stop_file, run, trigger
from watcher.spark.jobs.settings import HERE, refuse_speculation

logger = logging.getLogger("watcher")

LEAST_CLOSE_SECONDS = 2.0
"""The time for handlers to close after a signal, even if the last batch took all of it."""
# Spark has two Python processes a core; one more task finds all.
_CLOSE_TASKS_PER_CORE = 3


def watch(  # noqa: PLR0913 (its parameters are the options)
    stream: str,
    load: Callable[[], list[Handler]],
    *,
    test: RecordFilter | None = None,
    redaction: Redaction | None = None,
    start: str = "latest",
    checkpoint: str | None = None,
    once: bool = False,
    on_error: str | None = None,
    fail_on_data_loss: bool = False,
    stop_timeout: float = STOP_SECONDS,
    connection: AwsConfig = HERE,
    spark: SparkSession,
) -> JobTotals:
    """Hands every change to the handlers that `load` makes, in each executor's processes.

    The handlers get the records that pass the `test`, redacted.

    The job prints what the handlers print, batch by batch. After a crash it delivers a whole batch
    again. Each process has its own handlers, with their own state, and calls `close` at the end;
    Spark ends a process that was idle for a minute without calling it. `on_error` is that of a
    watch: with a checkpoint, the job retries a failed record forever.

    Raises HandlerError under `on_error="stop"`, and what the source raises.
    """
    refuse_speculation(spark)
    if on_error is None:
        on_error = "retry" if checkpoint else "log"
    # Checks here what only an executor would find out.
    policy = FailurePolicy.parse(on_error, AwsConfig(connection.region, connection.profile))
    service, arn = connect(stream, connection)
    if test is not None:
        test.refuse_view(first_listing(service, arn).view_type)
    stop = Shutdown(stop_timeout)
    task = HandlersTask(load, policy, sys.stdout.isatty(), test, redaction)
    batches, stop_file = BatchDelivery(task, stop), new_stop_file()
    with tempfile.TemporaryDirectory(
        prefix="watcher-", dir=temporary_folder(), ignore_cleanup_errors=True
    ) as folder:
        # Spark needs one in any case; without the user's it is for this run only.
        location = checkpoint or Path(folder).as_uri()
        records = changes(
            spark.readStream,
            stream,
            connection,
            startingPosition=start,
            wireRecords=True,
            columns=handler_tasks.COLUMNS,
            failOnDataLoss=fail_on_data_loss,
            stopFile=str(stop_file),
            checkpointLocation=location,
        )
        writer = records.writeStream.foreachBatch(batches.deliver)
        writer = writer.option("checkpointLocation", location)
        writer = writer.trigger(**trigger(once=once, every=None))
        try:
            totals = run(writer.start, "delivered", stop=stop, stop_file=stop_file, once=once)
        except WatcherError:
            with contextlib.suppress(WatcherError):
                close_handlers(spark, batches)
            raise
        totals.unhandled = batches.unhandled
        if batches.read and not batches.matched:
            names = test.names if test else frozenset()
            logger.warning(none_matched(batches.read, "change", names, batches.names))
        if totals.batches or totals.is_cut:  # before the first one nothing has loaded them
            close_handlers(spark, batches)
        return totals


class BatchDelivery:
    """Delivers a query's micro-batches in tasks, and prints here what the handlers print."""

    def __init__(self, task: HandlersTask, stop: Shutdown) -> None:
        self._task = task
        self.stop = stop
        self.unhandled = 0
        """The number of records that handlers failed on and that are kept nowhere."""
        self.read = self.matched = 0
        self.names: set[str] = set()

    def deliver(self, batch: DataFrame, number: int) -> None:
        """Delivers one micro-batch. Raises HandlerError under `on_error="stop"`.

        Spark then repeats the batch in the next run, as it does where the output can't be written.
        """
        self._run(handler_tasks.deliver, batch)

    def close(self, spark: SparkSession) -> None:
        """Calls `close` of the handlers in every Python process that Spark still has.

        Spark uses its idle processes in turn, so more tasks than processes reach all of them,
        except those that it has ended after an idle minute.
        """
        tasks = _CLOSE_TASKS_PER_CORE * spark.sparkContext.defaultParallelism
        self._run(handler_tasks.close, spark.range(0, tasks, 1, tasks))

    def _run(self, work: Callable[..., Iterator[pa.RecordBatch]], rows: DataFrame) -> None:
        done = rows.mapInArrow(functools.partial(work, self._task), handler_tasks.OUTCOME)
        outcomes = done.toArrow().to_pylist()
        for each in outcomes:
            self.unhandled += each["unhandled"]
            self.read += each["read"]
            self.matched += each["matched"]
            self.names.update(each["names"])
            self.print(each["printed"])
        for each in outcomes:
            if each["error"]:
                raise HandlerError(each["error"])

    def print(self, text: bytes) -> None:
        """Prints to stdout; requests the stop once its reader has gone (`| head`)."""
        try:
            sys.stdout.write(text.decode("utf-8", "backslashreplace"))
            sys.stdout.flush()
        except BrokenPipeError:
            self.stop.request()
        except OSError as error:
            raise HandlerError(f"can't write standard output: {error.strerror}") from None


def close_handlers(spark: SparkSession, batches: BatchDelivery) -> None:
    """Closes the handlers in each process, unless Spark's JVM has ended.

    After a signal they have the rest of `stop.timeout`, and at least LEAST_CLOSE_SECONDS.
    """
    stop, is_late = batches.stop, threading.Event()

    def cancel() -> None:
        is_late.set()
        with contextlib.suppress(Py4JError, OSError):
            spark.sparkContext.cancelAllJobs()

    timer = threading.Timer(max(stop.seconds_left, LEAST_CLOSE_SECONDS), cancel)
    timer.daemon = True
    if stop.signal:
        timer.start()
    try:
        with translating_errors():
            batches.close(spark)
    except WatcherError:
        if not is_late.is_set():
            raise
        logger.warning(
            f"Handlers were not closed: that took longer than --stop-timeout ({stop.timeout:g} s)"
        )
    except (Py4JError, OSError) as error:
        logger.debug(f"Handlers were not closed: {error}")
    finally:
        timer.cancel()
