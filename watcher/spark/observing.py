"""The sink that calls handlers: on the executors, each shard's changes in their order."""

from __future__ import annotations

import contextlib
import io
import secrets
import sys
import threading
from collections.abc import Callable, Iterator
from multiprocessing.connection import Client, Listener
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from watcher.dispatcher import Dispatcher, Observer, OnError
from watcher.record import Record

FORMAT = "watcher_handlers"


class Work(msgspec.Struct, frozen=True):
    """What an executor needs to call the handlers, and where what they print goes."""

    load: Callable[[], list[Observer]]
    on_error: str
    arn: str
    address: tuple[str, int]
    authkey: bytes


class Printed(WriterCommitMessage):
    """What the handlers have printed of one partition."""

    def __init__(self, text: str, records: int) -> None:
        self.text = text
        self.records = records


# Handlers keep state from batch to batch: a worker process loads them once.
_dispatchers: dict[bytes, Dispatcher] = {}


def _dispatcher(work: Work) -> Dispatcher:
    if work.authkey not in _dispatchers:
        made = Dispatcher(work.load(), OnError.parse(work.on_error))
        made.begin(work.arn)
        _dispatchers[work.authkey] = made
    return _dispatchers[work.authkey]


class HandlersWriter(DataSourceStreamArrowWriter):
    """Calls the handlers with each record; what they print is printed by the driver."""

    def __init__(self, work: Work) -> None:
        self._work = work

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Deliver one partition: some shards, one after the other. Raises ObserverError."""
        # An executor's own stdout is Spark's; this one is a buffer as handlers know it.
        buffer = io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace", newline="\n")
        records = 0
        with contextlib.redirect_stdout(buffer):
            dispatcher = _dispatcher(self._work)
            for batch in iterator:
                shards = batch.column("shard_id").to_pylist()
                for shard_id, text in zip(shards, batch.column("record").to_pylist(), strict=True):
                    dispatcher.deliver(Record.from_json(text.encode(), shard_id))
                    records += 1
            dispatcher.settle()
            dispatcher.flush()
        buffer.flush()
        raw = buffer.buffer
        assert isinstance(raw, io.BytesIO)
        return Printed(raw.getvalue().decode("utf-8", "backslashreplace"), records)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Hand over what was printed, once the whole micro-batch went well."""
        texts = [each.text for each in messages if isinstance(each, Printed) and each.text]
        if texts:
            with Client(self._work.address, authkey=self._work.authkey) as connection:
                connection.send_bytes("".join(texts).encode())
                connection.recv_bytes()  # it is out


class Output:
    """Prints, in the driver's own process, what handlers have printed elsewhere."""

    def __init__(self) -> None:
        self.authkey = secrets.token_bytes(32)
        # Spark's commit runs on the driver's machine.
        self._listener = Listener(("127.0.0.1", 0), authkey=self.authkey)
        self.address: tuple[str, int] = self._listener.address
        self.is_closed = threading.Event()
        """Whoever reads our output had enough (`| head`)."""
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            # Whoever has not the key is not heard.
            with contextlib.suppress(Exception), self._listener.accept() as connection:
                self._print(connection.recv_bytes())
                connection.send_bytes(b"")

    def _print(self, data: bytes) -> None:
        try:
            sys.stdout.write(data.decode("utf-8", "backslashreplace"))
            sys.stdout.flush()
        except BrokenPipeError:
            self.is_closed.set()


def register(spark: SparkSession, work: Work) -> None:
    """Offer the sink to a session, for these handlers."""
    made: dict[str, Any] = {"work": work}
    here = type("Handlers", (_Handlers,), made)
    here.__module__ = "__main__"  # so that it travels by value, the work with it
    spark.dataSource.register(here)


class _Handlers(DataSource):
    work: Work

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def streamWriter(self, schema: StructType, overwrite: bool) -> HandlersWriter:
        return HandlersWriter(self.work)
