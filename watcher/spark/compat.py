"""The differences between the Sparks that the source runs on: 4.0 to 4.3, classic and Connect."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any, NoReturn

import pyarrow as pa
import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.pandas import types
from pyspark.sql.types import StructType

from watcher.errors import WatcherError

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # 4.0 and 4.1
    HAS_ADMISSION_CONTROL = False
    ReadAllAvailable = ReadLimit = ReadMaxRows = SupportsTriggerAvailableNow = object  # type: ignore[assignment,misc]
else:
    HAS_ADMISSION_CONTROL = True
    """True where Spark tells a source where a micro-batch begins, and its row limit."""

__all__ = [
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "SupportsTriggerAvailableNow",
]


def context_of(spark: SparkSession) -> pyspark.SparkContext | None:
    """Returns the SparkContext of a classic session; None on Spark Connect, whose client has none.

    https://spark.apache.org/docs/latest/spark-connect-overview.html
    """
    try:
        return spark.sparkContext
    except PySparkException:  # JVM_ATTRIBUTE_NOT_SUPPORTED
        return None


def arrow_schema(schema: StructType) -> pa.Schema:
    """Returns Spark's schema as Arrow's, its timestamps in UTC."""
    # Up to 4.1 that is the default, and the parameter has another name.
    zone: dict[str, Any] = (
        {"timezone": "UTC"} if "timezone" in signature(types.to_arrow_schema).parameters else {}
    )
    return types.to_arrow_schema(schema, **zone)


class _RefusedReader(DataSourceStreamReader):
    """Stands for a reader that could not be made; raises the cause where Spark shows it."""

    def __init__(self, error: WatcherError) -> None:
        self._error = error

    def initialOffset(self, *given: object) -> NoReturn:
        """Raises the error."""
        raise self._error

    latestOffset = read = initialOffset  # type: ignore[assignment]


def reader_or_refusal(make: Callable[[], DataSourceStreamReader]) -> DataSourceStreamReader:
    """Returns the reader that `make` makes, or one that raises its error: Spark hides the first."""
    try:
        return make()
    except WatcherError as error:
        return _RefusedReader(error)
