"""The wheel's package `pyspark_dynamodb_streams`: `format("dynamodb_streams")` unregistered.

Spark imports every installed module of such a name and takes its `DefaultSource`
(https://spark.apache.org/docs/latest/api/python/tutorial/sql/python_data_source.html).
"""

import logging

try:
    from watcher.spark.source import DynamoDBStreams as DefaultSource
except Exception:  # it would end the lookup of everybody's sources, ours or not
    logging.getLogger("watcher").warning("dynamodb_streams can't be used", exc_info=True)

__all__ = ["DefaultSource"]
