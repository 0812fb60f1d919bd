"""Runs a streaming query to its end: triggers, signals, progress on stderr."""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import DataFrame, DataFrameReader
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamReader

from watcher.aws.config import AwsConfig
from watcher.errors import UsageError, WatcherError, blame
from watcher.files import temporary_folder
from watcher.formatting.text import counted
from watcher.shutdown import Shutdown
from watcher.spark import compat, jvm
from watcher.spark.error_mapping import one_line, translating_errors
from watcher.streams.start_times import parse_start
from watcher.times import parse_seconds

logger = logging.getLogger("watcher")

POLL_SECONDS: Final = 0.2
"""The delay between a job's checks of its query and of the request to stop."""
LAST_BATCH_POLL_SECONDS: Final = 0.05
"""The delay between checks whether a stopping job's last micro-batch is done."""
# The longest wait, at a stop, for a `latestOffset`; the source waits 0.1 s for first reads.
_LATEST_OFFSET_SECONDS: Final = 1.0
# The delay between two lines of progress.
_PROGRESS_SECONDS: Final = 5.0
_GETTING_OFFSETS = "Getting offsets from "
_Reader: TypeAlias = DataFrameReader | DataStreamReader


class JobTotals(msgspec.Struct):
    """The figures of a job's run."""

    batches: int = 0
    records: int = 0
    is_cut: bool = False
    """True if a micro-batch was interrupted."""
    signal: int = 0
    """The signal that ended the job; 0: none."""
    unhandled: int = 0
    """The number of failed records that are in no dead letter."""

    def __str__(self) -> str:
        failed = f", {self.unhandled} NOT HANDLED (see --on-error)" if self.unhandled else ""
        return f"{counted(self.records, 'change')} in {counted(self.batches, 'batch')}{failed}"


def changes(
    reader: _Reader, stream: str, connection: AwsConfig, **options: str | int | bool | None
) -> DataFrame:
    """Returns the stream's changes, by `spark.read` or `readStream`; None leaves an option out."""
    named = {
        "stream": stream,
        "region": connection.region,
        "profile": connection.profile,
        "endpointUrl": connection.endpoint_url,
        **options,
    }
    given = {name: value for name, value in named.items() if value is not None}
    # Checked now: Spark's later error does not name the option.
    for name, option in (("startingPosition", "start"), ("endingPosition", "until")):
        with blame(option):
            parse_start(str(given.get(name, "latest")), datetime.now(UTC))
    with translating_errors():
        return reader.format("dynamodb_streams").options(**given).load()


def trigger(*, once: bool, every: str | None, default: str | None = None) -> dict[str, Any]:
    """Returns a trigger, in Spark's words: once, at an interval, or whenever there are records.

    Raises UsageError.
    """
    if once and every:
        raise UsageError("--no-follow and --every can't be combined")
    if once:
        return {"availableNow": True}
    every = every or default
    with blame("every"):
        seconds = parse_seconds(every or "0s")
    return {"processingTime": f"{round(seconds * 1000)} milliseconds"}


def run(
    start: Callable[[], StreamingQuery],
    name: str,
    *,
    stop: Shutdown,
    stop_file: Path,
    once: bool,
) -> JobTotals:
    """Starts a query and stays with it until it ends, or is asked to `stop`, as by a signal.

    The micro-batch at work then has `stop.timeout` seconds left, and the source, whose `stopFile`
    is this one, begins no other.

    Raises what the source raised, as it was, and WatcherError for what Spark itself did.
    """
    totals = done = _run(start, name, stop, stop_file)
    # Up to 4.1, `availableNow` is one micro-batch: those of shards' children are left.
    while once and not compat.HAS_ADMISSION_CONTROL and done.records and not done.signal:
        done = _run(start, name, stop, stop_file)
        totals.batches += bool(done.records)  # Spark also tells of none
        totals.records += done.records
        totals.signal, totals.is_cut = done.signal, done.is_cut
    return totals


def _run(
    start: Callable[[], StreamingQuery], name: str, stop: Shutdown, stop_file: Path
) -> JobTotals:
    totals = JobTotals()
    with stopped_by_signals(stop), translating_errors():
        try:
            query = start()
            progress = _ProgressLine(query, totals, name)
            while query.isActive and not stop.requested:
                query.awaitTermination(POLL_SECONDS)  # type: ignore[arg-type]
                progress.update()
            if query.isActive:
                stop_file.touch(mode=0o600)
                totals.is_cut = _stop(query, stop.timeout)
                totals.signal = stop.signal
            elif (error := query.exception()) is not None:
                raise error
            progress.update(last=True)
        except Exception as error:
            # The signal went to Spark's JVM as well (a whole group's, a service manager's): it
            # ends by itself, and its checkpoint is as after a crash. What PySpark makes of an
            # answer that breaks off is any exception.
            if stop.signal:
                totals.signal = stop.signal
                logger.debug(f"Spark has ended by itself: {one_line(error)}")
            elif isinstance(error, (Py4JError, OSError)) and not isinstance(error, Py4JJavaError):
                raise WatcherError("Spark's JVM has ended; -v shows more") from error
            else:
                raise
        finally:
            stop_file.unlink(missing_ok=True)
    return totals


def new_stop_file() -> Path:
    """Returns a path for the source's `stopFile` that nothing has yet."""
    return Path(temporary_folder(), f"watcher-stop-{uuid.uuid4().hex}")


def _stop(query: StreamingQuery, seconds: float) -> bool:
    """Ends a query once the micro-batch in flight is done, if that does not take too long.

    Spark's own stop cancels the tasks at work: what they have done is done again, and handlers
    in them are not closed. Returns True where it has come to that. Nothing is done yet while the
    source is asked how far the next one goes.
    """
    jvm.silence()
    began = time.monotonic()
    is_cut = False
    while (status := query.status)["isTriggerActive"]:
        waited = time.monotonic() - began
        if waited >= min(seconds, _LATEST_OFFSET_SECONDS) and status["message"].startswith(
            _GETTING_OFFSETS
        ):
            break
        if is_cut := waited >= seconds:
            logger.warning(
                f"The micro-batch at work was cut off after {seconds:g} s: a start on the same "
                "checkpoint completes it; --stop-timeout gives it longer"
            )
            break
        time.sleep(LAST_BATCH_POLL_SECONDS)
    query.stop()
    return is_cut


class _ProgressLine:
    """A line on stderr now and then, for what has happened since."""

    def __init__(self, query: StreamingQuery, totals: JobTotals, name: str) -> None:
        self._query = query
        self._totals = totals
        self._name = name
        self._seen = -1
        self._records = 0
        self._due = 0.0

    def update(self, *, last: bool = False) -> None:
        """Counts new micro-batches, and logs the figures when that is due."""
        lag: dict[str, Any] = {}
        newest = self._query.lastProgress
        # All that Spark keeps take a call into its JVM each: only where some have come meanwhile.
        has_gap = newest is not None and newest["batchId"] > self._seen + 1
        for each in self._query.recentProgress if has_gap else filter(None, [newest]):
            source = each["sources"][0]
            if each["batchId"] > self._seen and (each["numInputRows"] or 0) >= 0:
                self._seen = each["batchId"]
                self._totals.batches += 1
                self._totals.records += max(0, each["numInputRows"])
            if compat.HAS_ADMISSION_CONTROL:  # up to 4.1, a source reports none
                lag = json.loads(source["latestOffset"] or "{}") or lag
        now = time.monotonic()
        if self._totals.records > self._records and (now >= self._due or last):
            self._due = now + _PROGRESS_SECONDS
            self._records = self._totals.records
            behind = f", {lag['lag_seconds']} s behind" if lag.get("lag_seconds") else ""
            shards = (
                f", {counted(lag['shards_open'], 'open shard')}" if "shards_open" in lag else ""
            )
            logger.info(f"{self._name}: {counted(self._records, 'change')}{shards}{behind}")


def stopped_by_signals(stop: Shutdown) -> AbstractContextManager[None]:
    """Lets signals stop a job, without PySpark's own handler: it would cancel the micro-batch."""

    def request() -> None:
        jvm.silence()
        stop.request()

    return stop.handle_signals(request, calls_host=False)
