"""Runs a streaming query to its end: triggers, signals, progress on stderr, errors in one line."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from types import FrameType, MappingProxyType
from typing import Any

import msgspec
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from watcher import errors
from watcher.aws.config import AwsConfig
from watcher.delivery.shutdown import stopping_signals
from watcher.errors import UsageError, WatcherError, blame
from watcher.spark import jvm
from watcher.spark.jobs.settings import LAST_BATCH_SECONDS
from watcher.spark.jvm import death, said, text_of
from watcher.streams.position import parse_start

logger = logging.getLogger("watcher")

_TIME = re.compile(r"(\d+)\s*(ms|s|m|h)")
_UNITS = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours"}
_POLL_SECONDS = 0.2
_PROGRESS_SECONDS = 5.0
_LAST_BATCH_POLL_SECONDS = 0.05
# An answer of the source's, which waits 0.1 s for first reads, is on its way no longer.
_ASKING_SECONDS = 1.0
_ASKING = "Getting offsets from "
# What Spark wraps around an exception of ours is a page of Python and Java.
_OURS = re.compile(r"watcher\.errors\.(\w+): ([^\n]+)")
# watcher/spark/picklable.py
_LACKING = re.compile(r"^ImportError: (Spark's worker on this machine .+)", re.MULTILINE)
# The source knows its option, not which command it runs in.
_LOSS_OPTION = "failOnDataLoss=false"
_LOSS_FLAGS = "on the command line: --lossy, or a watch without --fail-on-data-loss"


class _Signal:
    """The signal that has asked the job of this process to end; 0 for none."""

    number = 0
    at = 0.0
    """When it came, in monotonic seconds."""


class JobTotals(msgspec.Struct):
    """What a job has done in this run."""

    batches: int = 0
    records: int = 0
    is_cut: bool = False
    """Whether a micro-batch was cut off."""


def changes(
    spark: SparkSession, stream: str, connection: AwsConfig, **options: str | int | bool | None
) -> DataFrame:
    """The stream's changes as a streaming DataFrame; options that are None are left out."""
    return _loaded(spark.readStream, stream, connection, options)


def all_changes(
    spark: SparkSession, stream: str, connection: AwsConfig, **options: str | int | bool | None
) -> DataFrame:
    """Everything in retention as a DataFrame."""
    return _loaded(spark.read, stream, connection, options)


def _loaded(reader: Any, stream: str, connection: AwsConfig, options: dict[str, Any]) -> DataFrame:
    named = {
        "stream": stream,
        "region": connection.region,
        "profile": connection.profile,
        "endpointUrl": connection.endpoint_url,
        **options,
    }
    given = {name: value for name, value in named.items() if value is not None}
    # Said now: what Spark says of it later does not know the option.
    for name, option in (("startingPosition", "start"), ("endingPosition", "until")):
        with blame(option):
            parse_start(given.get(name, "latest"), datetime.now(UTC))
    with in_one_line():
        frame: DataFrame = reader.format("dynamodb_streams").options(**given).load()
    return frame


def triggered(
    writer: DataStreamWriter, *, once: bool, every: str | None, default: str | None = None
) -> DataStreamWriter:
    """A writer that runs once, every so often, or (without any) whenever there is something."""
    if once and every:
        raise UsageError("--once and --every exclude each other")
    if once:
        return writer.trigger(availableNow=True)
    every = every or default
    return writer.trigger(processingTime=interval(every, "every")) if every else writer


def interval(text: str, option: str) -> str:
    """`10s` in Spark's words. Raises UsageError, which blames the option."""
    found = _TIME.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"can't read {text!r} as a time: use 500ms, 10s, 1m, 1h", option)
    return f"{found[1]} {_UNITS[found[2]]}"


def run(
    start: Callable[[], StreamingQuery],
    name: str,
    until: threading.Event | None = None,
    stop_timeout: float = LAST_BATCH_SECONDS,
    counted: Mapping[int, int] = MappingProxyType({}),
) -> JobTotals:
    """Start a query and stay with it until it ends, or a signal or `until` ends it.

    The micro-batch at work then has `stop_timeout` seconds left. `counted` has the changes of
    micro-batches that Spark itself does not count, by their numbers, before they are done.

    Raises what the source raised, as it was, and WatcherError for what Spark itself did.
    """
    totals = JobTotals()
    with stopped_by_signals() as stopping, in_one_line():
        try:
            query = start()
            progress = _ProgressLine(query, totals, name, counted)
            while query.isActive and not stopping.is_set() and not (until and until.is_set()):
                query.awaitTermination(_POLL_SECONDS)  # type: ignore[arg-type]
                progress.tell()
            if query.isActive:
                totals.is_cut = _stop(query, stop_timeout)
            elif (error := query.exception()) is not None:
                raise error
            else:
                _Signal.number = 0  # one that came later has not ended anything
            progress.tell(last=True)
        except Exception as error:
            # The signal went to Spark's JVM as well (a whole group's, a service manager's): it
            # ends by itself, and its checkpoint is as after a crash. What PySpark makes of an
            # answer that breaks off is any exception.
            if stopping.is_set():
                logger.debug(f"Spark has ended by itself: {said(error)}")
            elif isinstance(error, (Py4JError, OSError)) and not isinstance(error, Py4JJavaError):
                raise WatcherError("Spark's JVM has ended; -v shows more") from error
            else:
                raise
    return totals


def _stop(query: StreamingQuery, seconds: float) -> bool:
    """End a query once the micro-batch in flight is done, if that does not take too long.

    Spark's own stop cancels the tasks at work: what they have done is done again, and handlers
    in them are not closed. True where it has come to that. Nothing is done yet while the service
    is asked how far the next one goes.
    """
    jvm.silence()
    state = query._jsq.streamingQuery().state()
    kind = state.get().getClass()
    # As Spark's stop does it, but without the interrupt: no other micro-batch begins.
    terminated = kind.getClassLoader().loadClass(f"{kind.getPackageName()}.TERMINATED$")
    state.set(terminated.getField("MODULE$").get(None))
    began = time.monotonic()
    is_cut = False
    while (status := query.status)["isTriggerActive"]:
        waited = time.monotonic() - began
        if waited >= min(seconds, _ASKING_SECONDS) and status["message"].startswith(_ASKING):
            break
        if is_cut := waited >= seconds:
            logger.warning(
                f"The micro-batch at work was cut off after {seconds:g} s: a start on the same "
                "checkpoint completes it; --stop-timeout gives it longer"
            )
            break
        time.sleep(_LAST_BATCH_POLL_SECONDS)
    query.stop()
    return is_cut


class _ProgressLine:
    """A line on stderr now and then, for what has happened since."""

    def __init__(
        self, query: StreamingQuery, totals: JobTotals, name: str, counted: Mapping[int, int]
    ) -> None:
        self._query = query
        self._totals = totals
        self._name = name
        self._counted = counted
        self._seen = -1
        self._records = 0
        self._due = 0.0

    def tell(self, *, last: bool = False) -> None:
        """Count what is new, and say it when it is time."""
        lag: dict[str, Any] = {}
        for each in self._query.recentProgress:
            source = each["sources"][0]
            if each["batchId"] > self._seen and (each["numInputRows"] or 0) >= 0:
                self._seen = each["batchId"]
                self._totals.batches += 1
                self._totals.records += self._counted.get(
                    each["batchId"], max(0, each["numInputRows"])
                )
            lag = json.loads(source["latestOffset"] or "{}") or lag
        now = time.monotonic()
        if self._totals.records > self._records and (now >= self._due or last):
            self._due = now + _PROGRESS_SECONDS
            self._records = self._totals.records
            # As the last micro-batch began, the lag was of what it has brought since.
            is_behind = lag.get("lag_seconds") and not last
            behind = f", {lag['lag_seconds']} s behind" if is_behind else ""
            shards = f", {lag['shards_open']} open shards" if "shards_open" in lag else ""
            logger.info(f"{self._name}: {self._records} changes{shards}{behind}")


@contextmanager
def stopped_by_signals() -> Iterator[threading.Event]:
    """An event that the first SIGINT, SIGTERM or SIGHUP sets; a second ends the process at once."""
    event = threading.Event()
    _Signal.number = 0
    if threading.current_thread() is not threading.main_thread():
        yield event
        return

    def end(number: int, frame: FrameType | None) -> None:
        if event.is_set():
            os._exit(128 + number)
        _Signal.number = number
        _Signal.at = time.monotonic()
        jvm.silence()
        event.set()

    before = {number: signal.signal(number, end) for number in stopping_signals()}
    try:
        yield event
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def ended_by() -> int:
    """The signal that has ended the last job of this process at work; 0 for none."""
    return _Signal.number


def seconds_left(stop_timeout: float) -> float | None:
    """How many are left of those that a signal has given the last job; None where none came."""
    return stop_timeout + _Signal.at - time.monotonic() if _Signal.number else None


@contextmanager
def in_one_line() -> Iterator[None]:
    """Errors out of Spark as watcher's own, one line each."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        raise translated(error) from error


def translated(error: Exception) -> WatcherError:
    """The exception of ours that is inside Spark's, or Spark's own first line."""
    text = text_of(error)
    if found := _OURS.findall(text):
        name, message = found[-1]
        message = message.replace(_LOSS_OPTION, f"{_LOSS_OPTION} ({_LOSS_FLAGS})")
        kind = getattr(errors, name, WatcherError)
        return kind(message.strip()) if issubclass(kind, WatcherError) else WatcherError(message)
    if lacking := _LACKING.search(text):
        return WatcherError(lacking[1].strip())
    return WatcherError(f"Spark: {death(error) or said(error)}")
