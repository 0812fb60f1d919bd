"""The wheel's package `pyspark_dynamodb_export`: `format("dynamodb_export")` unregistered.

See default_source.py.
"""

import logging

try:
    from watcher.spark.export_source import DynamoDBExport as DefaultSource
except Exception:  # it would end the lookup of everybody's sources, ours or not
    logging.getLogger("watcher").warning("dynamodb_export can't be used", exc_info=True)

__all__ = ["DefaultSource"]
