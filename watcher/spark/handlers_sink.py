"""The sink that calls handlers: on the executors, each shard's changes in their order."""

from __future__ import annotations

import contextlib
import io
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Client, Listener

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from watcher.delivery.dispatcher import Dispatcher
from watcher.delivery.failures import FailurePolicy
from watcher.delivery.handler import Handler
from watcher.errors import HandlerError, UsageError
from watcher.records.filters import RecordFilter
from watcher.records.record import Record
from watcher.records.redaction import Redaction
from watcher.spark.picklable import SparkPicklable
from watcher.spark.timing import LIMITS, TIMING

FORMAT = "watcher_handlers"


class HandlersTask(msgspec.Struct, frozen=True):
    """The work of an executor that calls handlers, and the address for what they print."""

    load: Callable[[], list[Handler]]
    on_error: FailurePolicy
    is_terminal: bool
    """True if a terminal shows their output: with colours, control characters escaped."""
    address: tuple[str, int]
    authkey: bytes
    test: RecordFilter | None = None
    """The filter of the records; None hands over all."""
    redaction: Redaction | None = None
    """Hides parts of these records."""

    def shown(self, record: Record) -> Record | None:
        """Returns a record as handlers see it; None if the filter drops it.

        Raises HandlerError for a filter that can't be used.
        """
        try:
            if self.test is not None and not self.test(record):
                return None
        except UsageError as error:
            raise HandlerError(str(error)) from None
        return record if self.redaction is None else self.redaction(record)


class Printed(WriterCommitMessage):
    """The text that handlers have printed in one task, and the error that has stopped them."""

    def __init__(self, text: str, error: str = "", unhandled: int = 0) -> None:
        self.text = text
        self.error = error
        self.unhandled = unhandled
        """The number of records that a handler failed on and that are kept nowhere."""


class _Stdout(io.TextIOWrapper):
    """A buffer in place of an executor's stdout, which Spark uses itself."""

    def __init__(self, is_terminal: bool) -> None:
        self._bytes = io.BytesIO()
        super().__init__(self._bytes, "utf-8", "backslashreplace", newline="\n")
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal

    @property
    def text(self) -> str:
        """Everything that was printed."""
        self.flush()
        return self._bytes.getvalue().decode("utf-8", "backslashreplace")


# Handlers keep state from batch to batch: a worker process loads them once.
_dispatchers: dict[bytes, Dispatcher] = {}


def _dispatcher(task: HandlersTask) -> Dispatcher:
    if task.authkey not in _dispatchers:
        _dispatchers[task.authkey] = Dispatcher(task.load(), task.on_error)
    return _dispatchers[task.authkey]


class HandlersWriter(SparkPicklable, DataSourceStreamArrowWriter):
    """Calls the handlers with each record; the driver prints their output."""

    def __init__(self, task: HandlersTask) -> None:
        self._task = task

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Delivers one partition: some shards, one after the other, up to a handler's failure."""
        stdout = _Stdout(self._task.is_terminal)
        error = ""
        with contextlib.redirect_stdout(stdout):
            dispatcher = _dispatcher(self._task)
            before = dispatcher.unhandled
            try:
                self._deliver(dispatcher, iterator)
            except HandlerError as failure:  # a task that fails would be tried again, silently
                error = str(failure)
        for _ in iterator:
            pass
        return Printed(stdout.text, error, dispatcher.unhandled - before)

    def _deliver(self, dispatcher: Dispatcher, iterator: Iterator[pa.RecordBatch]) -> None:
        for batch in iterator:
            for arn, shard_id, text in zip(*self._columns(batch), strict=True):
                dispatcher.start_stream(arn)
                record = self._task.shown(Record.from_json(text.encode(), shard_id, arn))
                if record is not None:
                    dispatcher.deliver(record)
        dispatcher.drain()
        dispatcher.flush()

    def _columns(self, batch: pa.RecordBatch) -> Iterator[list[str]]:
        yield batch["event_source_arn"].to_pylist()
        yield batch["shard_id"].to_pylist()
        yield batch["record"].to_pylist()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Prints the handlers' output. Raises HandlerError under `on_error="stop"`."""
        _print_in_driver(self._task, messages)


class ClosingWriter(SparkPicklable, DataSourceArrowWriter):
    """Closes the handlers of the Python process that runs the task."""

    def __init__(self, task: HandlersTask) -> None:
        self._task = task

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Calls each handler's `close`, once."""
        stdout = _Stdout(self._task.is_terminal)
        dispatcher = _dispatchers.pop(self._task.authkey, None)
        error = ""
        if dispatcher is not None:
            with contextlib.redirect_stdout(stdout):
                try:
                    dispatcher.close()
                except HandlerError as failure:  # a task that fails would be tried again
                    error = str(failure)
        for _ in iterator:
            pass
        time.sleep(TIMING.close_task_seconds)
        return Printed(stdout.text, error)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Prints the handlers' output. Raises HandlerError under `on_error="stop"`."""
        _print_in_driver(self._task, messages)


def _print_in_driver(task: HandlersTask, messages: list[WriterCommitMessage | None]) -> None:
    """Prints the tasks' output, then raises a handler's error; Spark tries no task again."""
    printed = [each for each in messages if isinstance(each, Printed)]
    text, unhandled = (
        "".join(each.text for each in printed),
        sum(each.unhandled for each in printed),
    )
    if text or unhandled:
        with Client(task.address, authkey=task.authkey) as connection:
            connection.send_bytes(unhandled.to_bytes(_COUNT_BYTES) + text.encode())
            connection.recv_bytes()  # it is printed
    for each in printed:
        if each.error:
            raise HandlerError(each.error)


_COUNT_BYTES = 8


class Printer:
    """Prints the handlers' output in the driver's own process.

    It calls `on_closed` once the reader of stdout has gone (`| head`).
    """

    def __init__(self, on_closed: Callable[[], object]) -> None:
        self.authkey = secrets.token_bytes(32)
        # Spark's commit runs on the driver's machine.
        self._listener = Listener(("127.0.0.1", 0), authkey=self.authkey)
        self.address: tuple[str, int] = self._listener.address
        self._on_closed = on_closed
        self.error: HandlerError | None = None
        """The error of a write to stdout, such as a full disk."""
        self.unhandled = 0
        """The number of records that handlers failed on and that are kept nowhere."""
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            # Only a process with the key can print.
            with contextlib.suppress(Exception), self._listener.accept() as connection:
                received = connection.recv_bytes()
                self._print(received[_COUNT_BYTES:])
                self.unhandled += int.from_bytes(received[:_COUNT_BYTES])
                connection.send_bytes(b"")

    def _print(self, data: bytes) -> None:
        try:
            sys.stdout.write(data.decode("utf-8", "backslashreplace"))
            sys.stdout.flush()
        except BrokenPipeError:
            self._on_closed()
        except OSError as error:  # without an answer, the micro-batch fails, and is repeated
            self.error = HandlerError(f"can't write standard output: {error.strerror}")
            raise


def register(spark: SparkSession, task: HandlersTask) -> None:
    """Offers the sink to a session, for these handlers."""
    here = type("Handlers", (_Handlers,), {"task": task})
    here.__module__ = "__main__"  # so that it is pickled by value, with the task
    spark.dataSource.register(here)


def close(spark: SparkSession) -> None:
    """Calls `close` of the handlers in every Python process that Spark still has.

    Spark uses its idle processes in turn, so more tasks than processes reach all of them, except
    those that it has ended after an idle minute.
    """
    tasks = LIMITS.close_tasks_per_core * spark.sparkContext.defaultParallelism
    spark.range(0, tasks, 1, tasks).write.format(FORMAT).mode("append").save()


class _Handlers(DataSource):
    task: HandlersTask

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def streamWriter(self, schema: StructType, overwrite: bool) -> HandlersWriter:
        return HandlersWriter(self.task)

    def writer(self, schema: StructType, overwrite: bool) -> ClosingWriter:
        return ClosingWriter(self.task)
