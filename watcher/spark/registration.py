"""Makes the source known to a Spark session."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from watcher.spark.source import DynamoDBStreams

_PACKAGE_PARENT = str(Path(__file__).parents[2])


def register(spark: SparkSession) -> None:
    """Offer `dynamodb_streams` to `spark.readStream.format(…)` and `spark.read.format(…)`."""
    _let_workers_import_us(spark.sparkContext)
    # A class made here travels to the planner by value, and what this session can do with it.
    what: dict[str, Any] = {"parallelism": spark.sparkContext.defaultParallelism}
    here = type("DynamoDBStreams", (DynamoDBStreams,), what)
    here.__module__ = "__main__"
    spark.dataSource.register(here)


def _let_workers_import_us(context: Any) -> None:
    """On this machine, Spark's Python workers are this Python, and find this package.

    Spark would start the first `python3` on the PATH. On a cluster it is for its administrator
    to have watcher installed.
    """
    if not context.master.startswith("local"):
        return
    if "PYSPARK_PYTHON" not in os.environ:
        context.pythonExec = sys.executable
    paths = [_PACKAGE_PARENT, context.environment.get("PYTHONPATH", "")]
    context.environment["PYTHONPATH"] = os.pathsep.join(filter(None, dict.fromkeys(paths)))
