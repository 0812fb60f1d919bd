"""Calls handlers in Spark's tasks: each shard's changes in their order."""

from __future__ import annotations

import contextlib
import io
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Final

import msgspec
import pyarrow as pa

from watcher.delivery.dispatcher import Dispatcher
from watcher.delivery.failures import FailurePolicy
from watcher.delivery.handler import Handler
from watcher.errors import HandlerError, UsageError
from watcher.records.filters import RecordFilter
from watcher.records.record import Record
from watcher.records.redaction import Redaction

COLUMNS: Final = "event_source_arn,shard_id,record"
"""What `deliver` reads."""
OUTCOME: Final = """
printed binary, error string, names array<string>, unhandled long, read long, matched long"""
"""The rows that tasks return: what handlers have printed, the error that has stopped them, names
that unwanted records have, and the numbers of records that are kept nowhere though a handler
failed, were read, and were wanted."""
_TEXTS: Final = {"printed": pa.binary(), "error": pa.string(), "names": pa.list_(pa.string())}
_NUMBERS: Final = dict.fromkeys(("unhandled", "read", "matched"), pa.int64())
_SCHEMA: Final = pa.schema(_TEXTS | _NUMBERS)

# A task that closes handlers keeps its process for so long: the next task gets another one.
_CLOSE_SECONDS: Final = 0.05


class HandlersTask(msgspec.Struct, frozen=True):
    """The work of an executor that calls handlers."""

    load: Callable[[], list[Handler]]
    on_error: FailurePolicy
    is_terminal: bool
    """True if a terminal shows their output: with colours, control characters escaped."""
    test: RecordFilter | None = None
    """The filter of the records; None hands over all."""
    redaction: Redaction | None = None
    """Hides parts of these records."""
    run: bytes = msgspec.field(default_factory=lambda: uuid.uuid4().bytes)
    """Differs from run to run, as a process may work for several."""


# Handlers keep state from batch to batch: a worker process loads them once.
_dispatchers: dict[bytes, Dispatcher] = {}


def deliver(task: HandlersTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Delivers one partition: some shards, one after the other, up to a handler's failure.

    Yields rows of `OUTCOME`. A failure is one of them: a task that fails would be tried again.
    """
    stdout = _Stdout(task.is_terminal)
    with contextlib.redirect_stdout(stdout):
        if task.run not in _dispatchers:
            _dispatchers[task.run] = Dispatcher(task.load(), task.on_error)
    dispatcher = _dispatchers[task.run]
    before, error = dispatcher.unhandled, None
    try:
        for batch in batches:
            with contextlib.redirect_stdout(stdout):
                matched, names = _deliver(task, dispatcher, batch)
            yield _outcome(stdout.take(), read=batch.num_rows, matched=matched, names=names)
        with contextlib.redirect_stdout(stdout):
            dispatcher.drain()
            dispatcher.flush()
    except HandlerError as failure:
        error = str(failure)
    for _ in batches:  # Spark ends a process that leaves rows unread, with the handlers' state
        pass
    yield _outcome(stdout.take(), error, unhandled=dispatcher.unhandled - before)


def _deliver(
    task: HandlersTask, dispatcher: Dispatcher, batch: pa.RecordBatch
) -> tuple[int, list[str]]:
    """Returns the number of records that passed the test, and the names that the others have."""
    unwanted = []
    columns = (batch[name].to_pylist() for name in COLUMNS.split(","))
    for arn, shard_id, text in zip(*columns, strict=True):
        record = Record.from_json(text.encode(), shard_id, arn)
        try:
            if task.test and not task.test(record):
                unwanted.append(record.wire)
                continue
        except UsageError as error:
            raise HandlerError(str(error)) from None
        dispatcher.deliver(record if task.redaction is None else task.redaction(record))
    names = task.test.names_beside(unwanted) if task.test else []
    return batch.num_rows - len(unwanted), names


def close(task: HandlersTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Closes the handlers of the process that runs the task, once; yields a row of `OUTCOME`."""
    stdout = _Stdout(task.is_terminal)
    dispatcher = _dispatchers.pop(task.run, None)
    error = None
    if dispatcher is not None:
        with contextlib.redirect_stdout(stdout):
            try:
                dispatcher.close()
            except HandlerError as failure:
                error = str(failure)
    for _ in batches:
        pass
    time.sleep(_CLOSE_SECONDS)
    yield _outcome(stdout.take(), error)


def _outcome(printed: bytes, error: str | None = None, **found: object) -> pa.RecordBatch:
    row = {**dict.fromkeys(_NUMBERS, 0), "printed": printed, "error": error, "names": [], **found}
    return pa.RecordBatch.from_pylist([row], _SCHEMA)


class _Stdout(io.TextIOWrapper):
    """A buffer in place of an executor's stdout, which Spark uses itself."""

    def __init__(self, is_terminal: bool) -> None:
        self._bytes = io.BytesIO()
        super().__init__(self._bytes, "utf-8", "backslashreplace", newline="\n")
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal

    def take(self) -> bytes:
        """Returns what was printed since the last time."""
        self.flush()
        printed = self._bytes.getvalue()
        self._bytes.seek(0)
        self._bytes.truncate()
        return printed
