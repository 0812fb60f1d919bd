"""What the user wants done when an observer fails, and where records end that it failed on."""

from __future__ import annotations

import errno
import logging
import os
import sysconfig
import traceback
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from watcher.clock import CLOCK, Clock
from watcher.errors import HandlerError, UsageError, without_passwords
from watcher.files import WholeFile, append_lines
from watcher.formatting.text import printable_key
from watcher.records.record import Record

logger = logging.getLogger("watcher")

_TELL_SECONDS = 10.0
_KINDS_MAX = 100
# Where code is that is not the user's own.
_PACKAGE = Path(__file__).parents[1]
_OTHERS = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib")})

# The last: of a standard output that is closed (`>&-`).
_UNWRITABLE = (
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.ESTALE),
    errno.EBADF,
)


class FailurePolicy(msgspec.Struct, frozen=True):
    """What to do when an observer raises: `log`, `stop`, `retry:N` or `dead-letter:FILE`."""

    policy: str = "log"
    retries: int = 0
    file: str = ""

    @classmethod
    def parse(cls, text: str) -> FailurePolicy:
        """From its text form. Raises UsageError for another."""
        policy, _, argument = text.partition(":")
        if policy in ("log", "stop") and not argument:
            return cls(policy)
        if policy == "retry" and argument.isascii() and argument.isdigit():
            return cls(policy, retries=int(argument))
        if policy == "dead-letter" and argument:
            return cls(policy, file=argument)
        reason = f"can't read {text!r}: use log, stop, retry:N or dead-letter:FILE"
        raise UsageError(reason, "on_error")


class _Repeated(msgspec.Struct):
    """An error that was said, and comes again."""

    times: int = 0
    """How often it came since."""
    last: str = ""
    """On what."""


class GivenUp:
    """Takes the records that an observer has failed on for good: to the log, or to a file.

    In the log an error of one type and place is said once; then how often it came again.
    """

    def __init__(self, on_error: FailurePolicy, clock: Clock = CLOCK) -> None:
        self._on_error = on_error
        self._clock = clock
        self._said: dict[tuple[str, str], _Repeated] = {}
        self._due = 0.0
        self.repeats = 0
        """How many errors are not said yet."""
        self._file: WholeFile | None = None
        if on_error.file:
            try:
                self._file = append_lines(on_error.file)
            except OSError as error:
                reason = f"can't write {on_error.file}: {error.strerror}"
                raise UsageError(reason, "on_error") from None

    def take(self, observer: str, records: Sequence[Record], error: BaseException) -> None:
        """Take records of one shard. Raises HandlerError where the watch is to end instead."""
        first, last = records[0].sequence_number, records[-1].sequence_number
        several = f"{len(records)} records from {first} to {last}"
        which = f"record {first}" if len(records) == 1 else several
        reason = without_passwords(str(error).partition("\n")[0])
        place = place_of(error)
        what = type(error).__name__ + (f" at {place}" if place else "")
        which += f" of {records[0].shard_id}{_key(records[0])}"
        text = f"observer {observer} failed on {which}: {type(error).__name__}: {reason}"
        text += f" at {place}" if place else ""
        # Where a disk is full or a file closed, all that follows would fail as well.
        lasting = isinstance(error, OSError) and error.errno in _UNWRITABLE
        if self._on_error.policy == "stop" or (lasting and self._file is None):
            about = [] if lasting else ["on_error"]
            text += "; stopped before it"
            raise HandlerError(text, about=about, observer=observer) from error
        if self._file is not None:
            try:
                letters = [_dead_letter(observer, record, error) for record in records]
                self._file.write(b"".join(letters))
            except OSError as trouble:
                raise HandlerError(
                    f"{text}; {self._on_error.file} can't be written: {trouble.strerror}; "
                    "stopped before it"
                ) from error
        if self._is_repeated(observer, what, which):
            return
        logger.error(
            text,
            exc_info=error if logger.isEnabledFor(logging.DEBUG) else None,
            extra={
                "stream": records[0].stream,
                "shard": records[0].shard_id,
                "observer": observer,
            },
        )

    def _is_repeated(self, observer: str, what: str, which: str) -> bool:
        """Whether it need not be said now."""
        if logger.isEnabledFor(logging.DEBUG):
            return False
        if len(self._said) >= _KINDS_MAX:
            self._tell()
            self._said.clear()
        found = self._said.get((observer, what))
        if found is None:
            self._said[observer, what] = _Repeated()
            self._due = self._due or self._clock.monotonic() + _TELL_SECONDS
            return False
        found.times += 1
        found.last = which
        self.repeats += 1
        self.tell_if_due()
        return True

    def tell_if_due(self) -> None:
        """Say how often what was said has come again, now and then."""
        if self._clock.monotonic() >= self._due:
            self._tell()

    def _tell(self) -> None:
        for (observer, what), repeated in self._said.items():
            if repeated.times:
                times = f"\N{MULTIPLICATION SIGN}{repeated.times}"
                text = f"observer {observer}: same error {times} ({what})"
                logger.error(f"{text}, the last on {repeated.last}", extra={"observer": observer})
                repeated.times = 0
        self.repeats = 0
        self._due = self._clock.monotonic() + _TELL_SECONDS

    def close(self) -> None:
        """No more come."""
        self._tell()
        if self._file is not None:
            try:
                self._file.close()
            except OSError as error:  # a network's disk
                logger.error(f"{self._on_error.file} may lack its last lines: {error.strerror}")


def place_of(error: BaseException) -> str:
    """`handlers/mine.py:12`: where in the user's own code it was raised; empty where not there."""
    frames = traceback.extract_tb(error.__traceback__)
    for frame in reversed(frames):
        file = Path(frame.filename)
        is_ours = _PACKAGE in file.parents and file.parent.name != "builtin_handlers"
        if not (is_ours or frame.filename.startswith((*_OTHERS, "<"))):
            return f"{os.path.relpath(file)}:{frame.lineno}"
    return ""


def _key(record: Record) -> str:
    keys = record["dynamodb"].get("Keys")
    return f" ({printable_key(keys)})" if keys else ""


def _dead_letter(observer: str, record: Record, error: BaseException) -> bytes:
    """One JSON line: the record's wire JSON as it came, and what went wrong with it."""
    letter = {
        "record": record.raw,
        "shard_id": record.shard_id,
        "stream": record.stream,
        "observer": observer,
        "error": without_passwords(f"{type(error).__name__}: {error}"),
        "failed_at": datetime.now(UTC),
    }
    return msgspec.json.encode(letter) + b"\n"
