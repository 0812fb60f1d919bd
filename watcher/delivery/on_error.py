"""What the user wants done when an observer fails, and where records end that it failed on."""

from __future__ import annotations

import errno
import logging
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from watcher.errors import ObserverError, UsageError
from watcher.files import WholeFile, append_lines
from watcher.record.record import Record

logger = logging.getLogger("watcher")

# The last: of a standard output that is closed (`>&-`).
_UNWRITABLE = (
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.ESTALE),
    errno.EBADF,
)


class OnError(msgspec.Struct, frozen=True):
    """What to do when an observer raises: `log`, `stop`, `retry:N` or `dead-letter:FILE`."""

    policy: str = "log"
    retries: int = 0
    file: str = ""

    @classmethod
    def parse(cls, text: str) -> OnError:
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


class GivenUp:
    """Takes the records that an observer has failed on for good: to the log, or to a file."""

    def __init__(self, on_error: OnError) -> None:
        self._on_error = on_error
        self._file: WholeFile | None = None
        if on_error.file:
            try:
                self._file = append_lines(on_error.file)
            except OSError as error:
                reason = f"can't write {on_error.file}: {error.strerror}"
                raise UsageError(reason, "on_error") from None

    def take(self, observer: str, records: Sequence[Record], error: BaseException) -> None:
        """Take records of one shard. Raises ObserverError where the watch is to end instead."""
        first, last = records[0].sequence_number, records[-1].sequence_number
        several = f"{len(records)} records from {first} to {last}"
        which = f"record {first}" if len(records) == 1 else several
        reason = str(error).partition("\n")[0]
        text = (
            f"observer {observer} failed on {which} "
            f"of {records[0].shard_id}: {type(error).__name__}: {reason}"
        )
        # Where a disk is full or a file closed, all that follows would fail as well.
        lasting = isinstance(error, OSError) and error.errno in _UNWRITABLE
        if self._on_error.policy == "stop" or (lasting and self._file is None):
            about = [] if lasting else ["on_error"]
            text += "; stopped before it"
            raise ObserverError(text, about=about, observer=observer) from error
        if self._file is not None:
            try:
                letters = [_dead_letter(observer, record, error) for record in records]
                self._file.write(b"".join(letters))
            except OSError as trouble:
                raise ObserverError(
                    f"{text}; {self._on_error.file} can't be written: {trouble.strerror}; "
                    "stopped before it"
                ) from error
        logger.error(
            text,
            exc_info=error if logger.isEnabledFor(logging.DEBUG) else None,
            extra={
                "stream": records[0].stream,
                "shard": records[0].shard_id,
                "observer": observer,
            },
        )

    def close(self) -> None:
        """No more come."""
        if self._file is not None:
            try:
                self._file.close()
            except OSError as error:  # a network's disk
                logger.error(f"{self._on_error.file} may lack its last lines: {error.strerror}")


def _dead_letter(observer: str, record: Record, error: BaseException) -> bytes:
    """One JSON line: the record's wire JSON as it came, and what went wrong with it."""
    letter = {
        "record": record.raw,
        "shard_id": record.shard_id,
        "stream": record.stream,
        "observer": observer,
        "error": f"{type(error).__name__}: {error}",
        "failed_at": datetime.now(UTC),
    }
    return msgspec.json.encode(letter) + b"\n"
