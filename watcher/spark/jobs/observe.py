"""Calls handlers on the executors, per shard in order, at least once."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from watcher.dispatcher import Observer
from watcher.spark import observing
from watcher.spark.jobs.running import Totals, changes, run, triggered
from watcher.spark.jobs.settings import HERE
from watcher.streams import Connection, connect


def observe(
    stream: str,
    load: Callable[[], list[Observer]],
    *,
    start: str = "latest",
    checkpoint: str | None = None,
    once: bool = False,
    on_error: str = "log",
    fail_on_data_loss: bool = False,
    connection: Connection = HERE,
    spark: SparkSession,
) -> Totals:
    """Hand every change to the observers that `load` makes, in each executor's processes.

    What they print comes out here, batch by batch. After a crash a batch is delivered again as a
    whole; state that an observer keeps is its own process's.

    Raises ObserverError under `on_error="stop"`, and what the source raises.
    """
    _, arn = connect(stream, connection)
    output = observing.Output()
    work = observing.Work(load, on_error, arn, output.address, output.authkey)
    observing.register(spark, work)
    frame = changes(
        spark,
        arn,
        connection,
        startingPosition=start,
        wireRecords=True,
        failOnDataLoss=fail_on_data_loss,
    )
    with tempfile.TemporaryDirectory(prefix="watcher-", ignore_cleanup_errors=True) as folder:
        # Spark has one in any case; without ours it is of this run only.
        place = checkpoint or Path(folder).as_uri()
        writer = frame.writeStream.format(observing.FORMAT).option("checkpointLocation", place)
        writer = triggered(writer, once=once, every=None)
        return run(writer.start, "delivered", until=output.is_closed)
