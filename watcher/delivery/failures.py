"""What the user wants done when a handler fails, and where records end that it failed on."""

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

# So often known errors are logged again, with how often they came.
_REPEAT_SECONDS = 10.0
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
    """What to do when a handler raises: `log`, `stop`, `retry:N` or `dead-letter:FILE`."""

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
    """An error that was logged, and comes again."""

    times: int = 0
    """How often it came since."""
    last: str = ""
    """On what."""


class GivenUp:
    """Takes the records that a handler has failed on for good: to the log, or to a file.

    The log has an error of one type and place once; then how often it came again.
    """

    def __init__(self, on_error: FailurePolicy, clock: Clock = CLOCK) -> None:
        self._on_error = on_error
        self._clock = clock
        self._seen: dict[tuple[str, str], _Repeated] = {}
        self._due = 0.0
        self.repeats = 0
        """How many errors are not logged yet."""
        self.file: WholeFile | None = None
        """The dead letters', where the policy has one."""
        if on_error.file:
            try:
                self.file = append_lines(on_error.file)
            except OSError as error:
                reason = f"can't write {on_error.file}: {error.strerror}"
                raise UsageError(reason, "on_error") from None

    def take(self, handler: str, records: Sequence[Record], error: BaseException) -> None:
        """Take records of one shard. Raises HandlerError where the watch is to end instead."""
        first, last = records[0].sequence_number, records[-1].sequence_number
        several = f"{len(records)} records from {first} to {last}"
        which = f"record {first}" if len(records) == 1 else several
        reason = without_passwords(str(error).partition("\n")[0])
        place = place_of(error)
        what = type(error).__name__ + (f" at {place}" if place else "")
        which += f" of {records[0].shard_id}{_key(records[0])}"
        text = f"handler {handler} failed on {which}: {type(error).__name__}: {reason}"
        text += f" at {place}" if place else ""
        # Where a disk is full or a file closed, all that follows would fail as well.
        lasting = isinstance(error, OSError) and error.errno in _UNWRITABLE
        if self._on_error.policy == "stop" or (lasting and self.file is None):
            about = [] if lasting else ["on_error"]
            text += "; stopped before it"
            raise HandlerError(text, about=about, handler=handler) from error
        if self.file is not None:
            try:
                letters = [_dead_letter(handler, record, error) for record in records]
                self.file.write(b"".join(letters))
            except OSError as trouble:
                raise HandlerError(
                    f"{text}; {self._on_error.file} can't be written: {trouble.strerror}; "
                    "stopped before it"
                ) from error
        if self._count_repeat(handler, what, which):
            return
        logger.error(
            text,
            exc_info=error if logger.isEnabledFor(logging.DEBUG) else None,
            extra={
                "stream": records[0].stream,
                "shard": records[0].shard_id,
                "observer": handler,
            },
        )

    def _count_repeat(self, handler: str, what: str, which: str) -> bool:
        """Count an error; True where it is a known one, which is logged later."""
        if logger.isEnabledFor(logging.DEBUG):
            return False
        if len(self._seen) >= _KINDS_MAX:
            self._log_repeats()
            self._seen.clear()
        found = self._seen.get((handler, what))
        if found is None:
            self._seen[handler, what] = _Repeated()
            self._due = self._due or self._clock.monotonic() + _REPEAT_SECONDS
            return False
        found.times += 1
        found.last = which
        self.repeats += 1
        self.log_repeats_if_due()
        return True

    def log_repeats_if_due(self) -> None:
        """Log how often known errors came again, now and then."""
        if self._clock.monotonic() >= self._due:
            self._log_repeats()

    def _log_repeats(self) -> None:
        for (handler, what), repeated in self._seen.items():
            if repeated.times:
                times = f"\N{MULTIPLICATION SIGN}{repeated.times}"
                text = f"handler {handler}: same error {times} ({what})"
                logger.error(f"{text}, the last on {repeated.last}", extra={"observer": handler})
                repeated.times = 0
        self.repeats = 0
        self._due = self._clock.monotonic() + _REPEAT_SECONDS

    def close(self) -> None:
        """Log what is left, and close the file."""
        self._log_repeats()
        if self.file is not None:
            try:
                self.file.close()
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


def _dead_letter(handler: str, record: Record, error: BaseException) -> bytes:
    """One JSON line: the record's wire JSON as it came, and what went wrong with it."""
    letter = {
        "record": record.raw,
        "shard_id": record.shard_id,
        "stream": record.stream,
        "observer": handler,
        "error": without_passwords(f"{type(error).__name__}: {error}"),
        "failed_at": datetime.now(UTC),
    }
    return msgspec.json.encode(letter) + b"\n"
