"""A worker without watcher names the fix in one sentence."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark import cloudpickle as untyped
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType
from pyspark.util import handle_worker_exception

from watcher.errors import UsageError
from watcher.spark.batch_reader import BatchReader
from watcher.spark.export_source import DynamoDBExport
from watcher.spark.options import parse
from watcher.spark.picklable import SparkPicklable
from watcher.spark.source import DynamoDBStreams
from watcher.spark.stream_reader import StreamReader

cloudpickle: Any = untyped
SCHEMA = StructType().add("shard_id", "string").add("record", "string")


def packed() -> bytes:
    given = {"stream": "orders", "wireRecords": "true", "maxRecordsPerTrigger": "7"}
    options = parse(given, streaming=True)
    made: bytes = cloudpickle.dumps(StreamReader(options, SCHEMA, 2))
    return made


def packed_source(source: type[DataSource]) -> bytes:
    """As Spark sends it with each task, beside its reader; `register` makes such a class."""
    here = type(source.__name__, (source,), {"parallelism": 7})
    here.__module__ = "__main__"
    made: bytes = cloudpickle.dumps(here({}))
    return made


@pytest.mark.parametrize("source", [DynamoDBStreams, DynamoDBExport])
def test_a_source_arrives_as_it_was_sent(source: type[DataSource]) -> None:
    arrived = cloudpickle.loads(packed_source(source))

    assert isinstance(arrived, source)
    assert arrived.name() == source.name()
    assert arrived.parallelism == 7  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "packed", [packed(), packed_source(DynamoDBStreams), packed_source(DynamoDBExport)]
)
def test_a_worker_without_watcher_says_what_to_install(packed: bytes) -> None:
    script = "import pickle, sys; sys.modules['watcher'] = None; "
    script += "pickle.loads(sys.stdin.buffer.read())"

    done = subprocess.run(
        [sys.executable, "-c", script], input=packed, capture_output=True, check=False
    )

    last = done.stderr.decode().splitlines()[-1]
    assert last.startswith(
        "ImportError: Spark's worker on this machine can't import dynamodb-watch"
    )
    assert f"install it for {sys.executable}, or send a packed environment" in last


def test_an_error_of_ours_shows_no_traceback_in_the_worker_that_it_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "")
    source = DynamoDBStreams({"stream": "orders", "startingPositon": "latest"})

    with pytest.raises(UsageError, match="did you mean startingPosition"):
        source.schema()

    told = io.BytesIO()
    handle_worker_exception(UsageError("a sentence"), told)
    assert told.getvalue()[8:].decode() == "watcher.errors.UsageError: a sentence\n"


def test_another_error_has_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "")

    class Broken(SparkPicklable):
        def read(self) -> Iterator[int]:
            yield 1 // 0

    with pytest.raises(ZeroDivisionError):
        list(Broken().read())

    assert not os.environ["SPARK_HIDE_TRACEBACK"]


def test_what_arrives_is_what_was_sent() -> None:
    reader = cloudpickle.loads(packed())

    assert isinstance(reader, StreamReader)
    assert reader.getDefaultReadLimit().max_rows == 7  # type: ignore[attr-defined]
    batch = BatchReader(parse({"stream": "orders", "wireRecords": "true"}, streaming=False), SCHEMA)
    assert isinstance(cloudpickle.loads(cloudpickle.dumps(batch)), BatchReader)
