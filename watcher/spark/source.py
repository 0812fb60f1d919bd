"""`format("dynamodb_streams")`: a table's changes as a Spark stream or a DataFrame."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import ClassVar

import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from watcher.aws.credentials import keys_for_helpers
from watcher.spark import compat
from watcher.spark.batch_reader import BatchReader
from watcher.spark.columns import ddl
from watcher.spark.export_source import DynamoDBExport
from watcher.spark.items import ItemsReader
from watcher.spark.options import parse
from watcher.spark.spark40 import Spark40Reader
from watcher.spark.stream_reader import StreamReader

_ONLY_READ = ("endingposition", "items", "segments", "readlimit")
_PACKAGE_PARENT = str(Path(__file__).parents[2])


class DynamoDBStreams(DataSource):
    """Changes of a DynamoDB table."""

    parallelism: ClassVar[int] = 2
    """The number of tasks that run at once; `register` sets it."""

    @classmethod
    def name(cls) -> str:
        """Returns what goes into `format(…)`."""
        return "dynamodb_streams"

    def schema(self) -> str:
        """Returns the columns; they depend on `columns` and others."""
        given = dict(self.options.items())
        # Whether this is for a stream is not known here: both have these options.
        for name in _ONLY_READ:
            given.pop(name, None)
        return ddl(parse(given, streaming=True))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Returns the reader of `spark.readStream`."""
        return compat.reader_or_refusal(lambda: self._stream_reader(schema))

    def _stream_reader(self, schema: StructType) -> DataSourceStreamReader:
        options = parse(dict(self.options), streaming=True)
        kind = StreamReader if compat.HAS_ADMISSION_CONTROL else Spark40Reader
        return kind(options, schema, self.parallelism, keys=keys_for_helpers)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Returns the reader of `spark.read`."""
        options = parse(dict(self.options), streaming=False)
        if options.items:
            return ItemsReader(options, schema, self.parallelism)
        return BatchReader(options, schema, parallelism=self.parallelism, keys=keys_for_helpers)


def register(spark: SparkSession) -> None:
    """Offers `dynamodb_streams` to `spark.readStream.format(…)` and `spark.read.format(…)`.

    And `dynamodb_export`, a table's export to S3, to the latter.

    Where the package is installed for Spark's Pythons, it is found without this, too. On Spark
    Connect it has to be: the server runs it.
    """
    # A class made here is pickled by value, with what this session can do.
    found: dict[str, int] = {}
    if (context := compat.context_of(spark)) is not None:
        _let_workers_import_us(context)
        found["parallelism"] = context.defaultParallelism
    for source, members in ((DynamoDBStreams, found), (DynamoDBExport, {})):
        here = type(source.__name__, (source,), dict(members))
        here.__module__ = "__main__"
        try:
            spark.dataSource.register(here)
        except PySparkException as error:
            # Spark has found it by itself: 4.0 minds, newer ones don't.
            if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
                raise


def _let_workers_import_us(context: pyspark.SparkContext) -> None:
    """Makes Spark's Python workers, on this machine, this Python that finds this package.

    Spark would start the first `python3` on the PATH. On a cluster it is for its administrator
    to have watcher installed.
    """
    if not (context.master or "").startswith("local"):
        return
    if "PYSPARK_PYTHON" not in os.environ:
        context.pythonExec = sys.executable
    paths = [_PACKAGE_PARENT, context.environment.get("PYTHONPATH", "")]
    context.environment["PYTHONPATH"] = os.pathsep.join(filter(None, dict.fromkeys(paths)))
