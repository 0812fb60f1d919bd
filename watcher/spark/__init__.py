"""DynamoDB Streams on Spark: `register(spark)`, then `format("dynamodb_streams")`."""

from watcher.spark.source import register

__all__ = ["register"]
