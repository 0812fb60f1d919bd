"""A Spark query as a user writes one: reads everything there is, twice; for `test_spark`."""

import sys

from watcher.spark import session


def main(stream: str, folder: str) -> None:
    """Stream into Parquet, then read as a batch."""
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
    print("read", batch.count())
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
