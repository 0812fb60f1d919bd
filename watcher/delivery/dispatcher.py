"""Records to observers, and what happens when one of them fails."""

from __future__ import annotations

import contextlib
import errno
import functools
import logging
import os
import select
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import IO

import msgspec

from watcher import forks
from watcher.clock import CLOCK, Clock
from watcher.delivery.batches import Batches
from watcher.delivery.callables import check_answer
from watcher.delivery.observer import Observer
from watcher.errors import ObserverError, UsageError
from watcher.record.record import Record

logger = logging.getLogger("watcher")

# The last: of a standard output that is closed (`>&-`).
_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EBADF)
_RETRY_SECONDS = 0.1
_RETRY_SECONDS_MAX = 10.0


class OutputClosed(Exception):
    """Standard output is closed (`| head`): time to end, quietly."""


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
        raise UsageError(f"can't read {text!r}: use log, stop, retry:N or dead-letter:FILE")


class Dispatcher:
    """Hands each record to each observer, one after the other.

    An observer's failure follows `on_error` and never keeps a record from another observer.
    """

    def __init__(
        self,
        observers: Sequence[Observer],
        on_error: OnError,
        *,
        clock: Clock = CLOCK,
        before_retry: Callable[[], object] = lambda: None,
    ) -> None:
        self._observers = observers
        self._on_error = on_error
        self._calls = [observer.handle for observer in observers]
        self._batches: list[Batches] = []
        for observer in observers:
            if observer.batches is not None:
                observer.batches.give_up = functools.partial(self._given_up, observer)
                observer.batches.on_failure = self._batch_failed
                self._batches.append(observer.batches)
        self._arn = ""
        self._output_closed = False
        self.before_retry = before_retry
        """Called before what has failed is tried again, which may take long."""
        self._dead_letters: IO[bytes] | None = None
        if on_error.file:
            try:
                self._dead_letters = _open_to_append_lines(on_error.file)
            except OSError as error:
                raise UsageError(f"can't write {on_error.file}: {error.strerror}") from None
        # A child that an observer forks, and that comes back here, must not deliver as well.
        forks.in_child(self._leave)
        self.failed: Counter[str] = Counter({observer.name: 0 for observer in observers})
        """How many records each observer has failed on, retries not counted."""
        self._failed_to_close = 0

    @property
    def failures(self) -> int:
        """How many times an observer has failed, on a record or as it was closed."""
        return self.failed.total() + self._failed_to_close

    def processed(self, delivered: int) -> dict[str, int]:
        """How many of so many records each observer has neither failed on nor still to batch."""
        counts: Counter[str] = Counter()
        for observer in self._observers:
            waiting = observer.batches.left().values() if observer.batches else ()
            counts[observer.name] += delivered - sum(waiting)
        return {name: max(0, count - self.failed[name]) for name, count in counts.items()}

    def deliver(self, record: Record) -> None:
        """Call every observer. Raises ObserverError under `stop`, OutputClosed."""
        fatal: ObserverError | None = None
        for index, call in enumerate(self._calls):
            try:
                if (answer := call(record)) is not None:
                    check_answer(answer)
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                fatal = self._failed(self._observers[index], record, error) or fatal
        if fatal is not None:
            raise fatal

    def _failed(
        self, observer: Observer, record: Record, error: BaseException
    ) -> ObserverError | None:
        if observer.batches is not None and isinstance(error, OutputClosed | ObserverError):
            if isinstance(error, OutputClosed):
                raise error
            return error  # of a batch that this record has filled
        self._end_if_output_is_closed(error)
        again = self._retry(observer, record, error)
        return None if again is None else self._failed_for_good(observer, [record], again)

    def _end_if_output_is_closed(self, error: BaseException) -> None:
        """Raise OutputClosed where it is no failure: nobody reads what the observer prints."""
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, BrokenPipeError):
            cause = cause.__cause__ or cause.__context__
        if cause is not None and _stdout_is_closed():
            self._output_closed = True
            raise OutputClosed from error

    def _batch_failed(self, error: BaseException) -> None:
        self._end_if_output_is_closed(error)
        self.before_retry()

    def _given_up(
        self, observer: Observer, records: Sequence[Record], error: BaseException
    ) -> None:
        """A batch has failed, its retries included. Raises ObserverError under `stop`."""
        fatal = self._failed_for_good(observer, records, error)
        if fatal is not None:
            raise fatal

    def _failed_for_good(
        self, observer: Observer, records: Sequence[Record], error: BaseException
    ) -> ObserverError | None:
        self.failed[observer.name] += len(records)
        first, last = records[0].sequence_number, records[-1].sequence_number
        several = f"{len(records)} records from {first} to {last}"
        which = f"record {first}" if len(records) == 1 else several
        reason = str(error).partition("\n")[0]
        text = (
            f"observer {observer.name} failed on {which} "
            f"of {records[0].shard_id}: {type(error).__name__}: {reason}"
        )
        # Where a disk is full or a file closed, all that follows would fail as well.
        lasting = isinstance(error, OSError) and error.errno in _UNWRITABLE
        if self._on_error.policy == "stop" or (lasting and self._dead_letters is None):
            return ObserverError(f"{text}; stopped before it")
        if self._dead_letters is not None:
            try:
                for record in records:
                    self._dead_letters.write(self._dead_letter(observer, record, error))
                self._dead_letters.flush()
            except OSError as trouble:
                return ObserverError(
                    f"{text}; {self._on_error.file} can't be written: {trouble.strerror}; "
                    "stopped before it"
                )
        logger.error(
            text,
            exc_info=error if logger.isEnabledFor(logging.DEBUG) else None,
            extra={"stream": self._arn, "shard": records[0].shard_id, "observer": observer.name},
        )
        return None

    def _dead_letter(self, observer: Observer, record: Record, error: BaseException) -> bytes:
        """One JSON line: the record's wire JSON as it came, and what went wrong with it."""
        letter = {
            "record": record.raw,
            "shard_id": record.shard_id,
            "stream": self._arn,
            "observer": observer.name,
            "error": f"{type(error).__name__}: {error}",
            "failed_at": datetime.now(UTC),
        }
        return msgspec.json.encode(letter) + b"\n"

    def _retry(
        self, observer: Observer, record: Record, error: BaseException
    ) -> BaseException | None:
        """The last error after the retries that the policy allows; None once one went well."""
        for attempt in range(self._on_error.retries):
            self.before_retry()
            time.sleep(min(_RETRY_SECONDS * 2.0 ** min(attempt, 10), _RETRY_SECONDS_MAX))
            try:
                check_answer(observer.handle(record))
            except KeyboardInterrupt:
                raise
            except BaseException as another:
                self._end_if_output_is_closed(another)
                error = another
            else:
                return None
        return error

    # What observers that work in batches have not done yet

    def begin(self, arn: str) -> None:
        """Records of this stream are to come. Raises as `deliver`."""
        if arn != self._arn:
            self.settle()  # what waits is of the stream before
            self._arn = arn
            for observer in self._observers:
                if observer.begin is not None:
                    observer.begin(arn)

    def page_end(self, shard_id: str) -> None:
        """A shard's records at hand have been delivered. Raises ObserverError, as `deliver`."""
        for batches in self._batches:
            batches.page_end(shard_id)

    def tick(self) -> None:
        """Time has passed: some batches may have waited long enough. Raises as `deliver`."""
        for batches in self._batches:
            batches.tick()

    def settle(self, shard_id: str | None = None) -> None:
        """Let the batches of a shard (or of all) wait no longer. Raises as `deliver`."""
        for batches in self._batches:
            if shard_id is None:
                batches.settle_all()
            else:
                batches.settle(shard_id)

    def unsettled(self, shard_id: str) -> str | None:
        """The first of a shard's delivered records that some observer has not processed yet."""
        numbers = [batches.unsettled(shard_id) for batches in self._batches]
        return min((number for number in numbers if number), key=int, default=None)

    @property
    def left(self) -> int:
        """How many delivered records wait for an observer that works in batches (the slowest)."""
        return max((sum(batches.left().values()) for batches in self._batches), default=0)

    def stop(self) -> None:
        """The watch is to end: what fails from here on is not tried again."""
        for batches in self._batches:
            batches.stop()

    def flush(self) -> None:
        """Bring out what observers have printed. Raises OutputClosed, ObserverError (disk full)."""
        if sys.stdout is None or sys.stdout.closed:  # an observer's doing, or `>&-`
            return
        try:
            sys.stdout.flush()
        except BrokenPipeError as error:
            raise OutputClosed from error
        except OSError as error:
            raise ObserverError(f"can't write standard output: {error.strerror}") from error

    def close(self) -> None:
        """Call the observers' `close`, each whatever became of the others.

        Raises ObserverError under `stop` where one failed.
        """
        self.stop()
        failed = ""
        for observer in self._observers:
            if observer.batches is not None:
                self._settle_last(observer.name, observer.batches)
        for observer in self._observers:
            if observer.close is not None:
                try:
                    observer.close()
                except KeyboardInterrupt:
                    raise
                except BaseException as error:
                    if isinstance(error, BrokenPipeError) and _stdout_is_closed():
                        continue
                    self._failed_to_close += 1
                    what = f"{type(error).__name__}: {error}"
                    failed = f"observer {observer.name} failed to close: {what}"
                    logger.error(failed, extra={"observer": observer.name})
        if self._dead_letters is not None:
            with contextlib.suppress(OSError):  # said when it was written
                self._dead_letters.close()
        if failed and self._on_error.policy == "stop":
            raise ObserverError(failed)

    def _settle_last(self, name: str, batches: Batches) -> None:
        try:
            batches.settle_all()
        except ObserverError as error:
            logger.error(str(error))
        except OutputClosed:
            pass
        if self._output_closed:
            return
        for shard_id, count in batches.left().items():
            logger.warning(
                f"observer {name} has not processed {count} records of {shard_id}; "
                "a checkpoint stays before them"
            )

    def _leave(self) -> None:
        self._calls[:] = [_end_child]


def _end_child(record: Record) -> None:
    os._exit(0)


def _open_to_append_lines(path: str) -> IO[bytes]:
    """A file to append to; what a kill has cut off in its last line stays a line of its own."""
    file = open(path, "ab+")
    if file.seekable() and file.seek(0, os.SEEK_END):
        file.seek(-1, os.SEEK_END)
        if file.read(1) != b"\n":
            file.write(b"\n")
    return file


def _stdout_is_closed() -> bool:
    """Whether nobody reads our output any more; a flush can't tell, it may have nothing left."""
    try:
        descriptor = sys.stdout.fileno()
    except (AttributeError, OSError, ValueError):  # an observer has closed or replaced it
        return False
    poll = select.poll()
    poll.register(descriptor, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))
