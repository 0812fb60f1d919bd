"""What differs between the Sparks that the source runs on: classic and Connect, 4.2 and newer."""

from __future__ import annotations

from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession


def context_of(spark: SparkSession) -> Any:
    """The SparkContext of a classic session; None on Spark Connect, whose client has none.

    https://spark.apache.org/docs/latest/spark-connect-overview.html
    """
    try:
        return spark.sparkContext
    except PySparkException:  # JVM_ATTRIBUTE_NOT_SUPPORTED
        return None


def is_registered(error: PySparkException) -> bool:
    """Whether it says that Spark has found the source by itself: 4.0 minds, newer ones don't."""
    return error.getCondition() == "DATA_SOURCE_ALREADY_EXISTS"
