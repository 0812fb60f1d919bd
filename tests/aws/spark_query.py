"""Spark queries as a user writes them: up to now, as a batch, and on and on; for `test_spark`."""

import sys
import time
from typing import Any

from watcher.spark import session


def main(stream: str, folder: str, expected: str) -> None:
    """Stream into Parquet, read as a batch, then follow the stream until so many rows are there."""
    spark = session.start(master="local[2]")
    source = spark.readStream.format("dynamodb_streams").option("stream", stream)
    query = (
        source.option("startingPosition", "trim_horizon")
        .load()
        .writeStream.format("parquet")
        .option("path", f"{folder}/out")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    print("streamed", spark.read.parquet(f"{folder}/out").count())
    batch = spark.read.format("dynamodb_streams").option("stream", stream).load()
    batch.explain(mode="extended")
    print("read", batch.count(), flush=True)
    follow(spark, source, f"{folder}/followed", int(expected))
    spark.stop()


def follow(spark: Any, source: Any, folder: str, expected: int) -> None:
    """Follow the stream; whoever started this changes its credentials in the middle."""
    changes = source.option("startingPosition", "trim_horizon").load()
    query = (
        changes.writeStream.format("parquet")
        .option("path", f"{folder}/out")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .start()
    )
    count, deadline = 0, time.monotonic() + 200
    while count < expected and query.isActive and time.monotonic() < deadline:
        query.awaitTermination(0.3)
        now = sum(max(0, each["numInputRows"]) for each in query.recentProgress)
        if now != count:
            count = now
            print("followed", count, flush=True)
    query.stop()
    numbers = spark.read.parquet(f"{folder}/out").select("sequence_number")
    print("distinct", numbers.distinct().count(), "of", numbers.count(), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
