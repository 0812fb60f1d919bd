"""DynamoDB Streams on Spark: `register(spark)`, then `format("dynamodb_streams")`."""

from watcher import safe_path
from watcher.spark.error_mapping import translating_errors
from watcher.spark.merge import merge_into
from watcher.spark.source import register

safe_path.end()

__all__ = ["merge_into", "register", "translating_errors"]
