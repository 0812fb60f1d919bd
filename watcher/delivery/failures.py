"""The policies for a handler that fails, and the log messages about failures."""

from __future__ import annotations

import errno
import logging
import math
import os
import re
import sysconfig
import threading
import traceback
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from watcher.aws.config import AwsConfig
from watcher.clock import CLOCK, Clock
from watcher.delivery.dead_letters import DeadLetters, TakeDeadLetter, open_dead_letters
from watcher.errors import HandlerError, UsageError, error_text
from watcher.formatting.values import printable_key
from watcher.records.record import Record
from watcher.times import parse_duration

logger = logging.getLogger("watcher")

_KINDS_MAX = 100
_LOG_AGAIN_SECONDS = 10.0  # before a known error is logged again, with its count
# The folders of code that is not the user's own.
_PACKAGE = Path(__file__).parents[1]
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib")})

# EBADF: standard output is closed (`>&-`).
_UNWRITABLE = (
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.ESTALE),
    errno.EBADF,
)

_POLICY = re.compile(
    r"(?:retry:(?:(?P<count>[0-9]+)|(?P<time>[0-9.a-z]+))(?:$|,(?=.)))?"
    r"(?P<then>log|stop|dead-letter:(?P<place>.+))?"
)
_FORMS = (
    "use log, stop, dead-letter:DEST or retry (forever); retry:N and retry:15m take one of the "
    "others behind them, as in retry:15m,stop"
)


class FailurePolicy(msgspec.Struct, frozen=True):
    """The policy for a handler that raises: retries by count or time, and the action after them."""

    then: str = "log"
    """The action after the last retry: `log`, `stop` or `dead-letter`."""
    retries: float = 0
    """The number of retries; infinite for a limit by time, or none."""
    seconds: float = math.inf
    """The time from the first failure until the record is given up."""
    dead_letters: str | TakeDeadLetter = ""
    """The destination of dead letters: a file, `sqs://…`, `s3://…`, or a function."""
    aws: AwsConfig = AwsConfig()
    """The connection to a destination at AWS."""

    @classmethod
    def parse(cls, policy: str | TakeDeadLetter, aws: AwsConfig | None = None) -> FailurePolicy:
        """Returns the policy for a text such as `retry:15m,stop`, or a function for dead letters.

        Raises UsageError.
        """
        if not isinstance(policy, str):
            return cls("dead-letter", dead_letters=policy)
        aws = aws or AwsConfig()
        if policy == "retry":
            return cls(retries=math.inf, aws=aws)
        found = _POLICY.fullmatch(policy)
        time = parse_duration(found["time"] or "") if found else None
        if not (found and policy) or (found["time"] and time is None):
            raise UsageError(f"can't read {policy!r}: {_FORMS}", "on_error")
        then = (found["then"] or "log").partition(":")[0]
        if time is not None:
            return cls(then, math.inf, time.total_seconds(), found["place"] or "", aws)
        return cls(then, float(found["count"] or 0), math.inf, found["place"] or "", aws)

    @property
    def is_endless(self) -> bool:
        """True where a handler is retried until it succeeds."""
        return self.retries == self.seconds == math.inf


class FailureLog:
    """Logs an error of one type and place once, then the number of its repeats.

    Several threads may use it.
    """

    def __init__(self, clock: Clock = CLOCK) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._repeats: dict[tuple[str, str, str], int] = {}
        """The number of repeats that are not logged yet, by handler, error and what is done."""
        self._due = clock.monotonic() + _LOG_AGAIN_SECONDS

    def error(
        self, handler: str, records: Sequence[Record], error: BaseException, then: str = ""
    ) -> None:
        """Logs that a handler failed on records of one shard, followed by the text `then`."""
        kind = handler, _kind(error), then
        with self._lock:
            is_known = kind in self._repeats and not logger.isEnabledFor(logging.DEBUG)
            if is_known:
                self._repeats[kind] += 1
            else:
                if len(self._repeats) >= _KINDS_MAX:
                    self._log_repeats()
                    self._repeats.clear()
                self._repeats[kind] = 0
        if not is_known:
            logger.error(
                failure_text(handler, records, error) + then,
                exc_info=error if logger.isEnabledFor(logging.DEBUG) else None,
                extra={
                    "stream": records[0].stream,
                    "shard": records[0].shard_id,
                    "handler": handler,
                },
            )
        self.log_repeats_if_due()

    def log_repeats_if_due(self) -> None:
        """Logs the number of repeats of known errors, every few seconds at most."""
        if self._clock.monotonic() >= self._due:
            self.log_repeats()

    def log_repeats(self) -> None:
        """Logs the number of repeats of known errors."""
        with self._lock:
            self._log_repeats()

    def _log_repeats(self) -> None:
        for kind, times in self._repeats.items():
            handler, what, then = kind
            if times:
                text = (
                    f"handler {handler}: same error \N{MULTIPLICATION SIGN}{times} ({what}){then}"
                )
                logger.error(text, extra={"handler": handler})
                self._repeats[kind] = 0
        self._due = self._clock.monotonic() + _LOG_AGAIN_SECONDS


class FailedRecordSink:
    """Takes records that a handler has finally failed on: logs them, or writes dead letters.

    Several threads may use it; it writes one thread's dead letters after the other's.
    """

    def __init__(self, on_error: FailurePolicy, log: FailureLog) -> None:
        """Raises UsageError for a destination that can't be written to."""
        self._on_error = on_error
        self._log = log
        self.dead_letters: DeadLetters | None = None
        """The destination of dead letters, if the policy has one."""
        self.dead_letter_count = 0
        """The number of records written there."""
        self._writing = threading.Lock()
        if on_error.then == "dead-letter":
            self.dead_letters = open_dead_letters(on_error.dead_letters, on_error.aws)

    def take(self, handler: str, records: Sequence[Record], error: BaseException) -> None:
        """Takes records of one shard. Raises HandlerError where the watch has to end."""
        lasting = is_lasting(error)
        if self._on_error.then == "stop" or (lasting and self.dead_letters is None):
            about = [] if lasting else ["on_error"]
            text = f"{failure_text(handler, records, error)}; stopped before it"
            raise HandlerError(text, about=about, handler=handler) from error
        if self.dead_letters is not None:
            try:
                with self._writing:
                    for record in records:
                        self.dead_letters.put(record, handler, _letter(handler, record, error))
                        self.dead_letter_count += 1
            except KeyboardInterrupt:
                raise
            except BaseException as trouble:
                reason = trouble.strerror if isinstance(trouble, OSError) else None
                reason = reason or f"{type(trouble).__name__}: {error_text(trouble)}"
                raise HandlerError(
                    f"{failure_text(handler, records, error)}; {self.dead_letters.name} can't be "
                    f"written: {reason}; stopped before it"
                ) from error
        self._log.error(handler, records, error)

    def close(self) -> None:
        """Closes the destination."""
        if self.dead_letters is not None:
            try:
                self.dead_letters.close()
            except OSError as error:  # a network's disk
                name = self.dead_letters.name
                logger.error(f"{name} may lack its last lines: {error.strerror}")


def is_lasting(error: BaseException) -> bool:
    """True for a full disk or a closed file: all further writes would fail too."""
    return isinstance(error, OSError) and error.errno in _UNWRITABLE


def failure_text(handler: str, records: Sequence[Record], error: BaseException) -> str:
    """Returns one line: the handler, the records, the error and its place in the user's code."""
    reason = error_text(error).partition("\n")[0]
    text = f"handler {handler} failed on {which_of(records)}: {type(error).__name__}: {reason}"
    place = place_of(error)
    return text + (f" at {place}" if place else "")


def which_of(records: Sequence[Record]) -> str:
    """Returns the text for records of one shard: `record 42 of shard-1 (pk=…)`."""
    first, last = records[0].sequence_number, records[-1].sequence_number
    several = f"{len(records)} records from {first} to {last}"
    which = f"record {first}" if len(records) == 1 else several
    return f"{which} of {records[0].shard_id}{_key(records[0])}"


def _kind(error: BaseException) -> str:
    place = place_of(error)
    return type(error).__name__ + (f" at {place}" if place else "")


def place_of(error: BaseException) -> str:
    """Returns the error's place in the user's code, such as `handlers/mine.py:12`; "" if none."""
    frames = traceback.extract_tb(error.__traceback__)
    for frame in reversed(frames):
        file = Path(frame.filename)
        is_ours = _PACKAGE in file.parents and file.parent.name != "builtin_handlers"
        if not (is_ours or frame.filename.startswith((*_LIBRARIES, "<"))):
            return f"{os.path.relpath(file)}:{frame.lineno}"
    return ""


def _key(record: Record) -> str:
    keys = record["dynamodb"].get("Keys")
    return f" ({printable_key(keys)})" if keys else ""


def _letter(handler: str, record: Record, error: BaseException) -> bytes:
    """Returns a dead letter's line: the record's original JSON, the handler and the error."""
    letter = {
        "record": record.raw,
        "shard_id": record.shard_id,
        "stream": record.stream,
        "handler": handler,
        "error": f"{type(error).__name__}: {error_text(error)}",
        "failed_at": datetime.now(UTC),
    }
    return msgspec.json.encode(letter)
