"""`replay` and `redrive`: hand records that were not processed to handlers again."""

from __future__ import annotations

import inspect
import itertools
import logging
import os
import re
import stat
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, NamedTuple, Protocol

from watcher.aws.arns import table_name
from watcher.aws.config import AwsConfig, blaming
from watcher.cli import completers, handler_flags, options, output
from watcher.cli.command_line import CommandLine
from watcher.cli.options import Values
from watcher.cli.output import Line
from watcher.cli.status import bar
from watcher.cli.timing import COMMAND_TIMING
from watcher.declared import Parameter
from watcher.delivery.dead_letters import HeldMessages, LetterSource, open_letters
from watcher.delivery.dispatcher import Dispatcher
from watcher.delivery.failed_batches import FailedBatch, UnreadableMessage, failed_batches
from watcher.delivery.failures import FailurePolicy
from watcher.delivery.output import OutputClosed
from watcher.errors import UsageError
from watcher.formatting import style
from watcher.formatting.style import time_text
from watcher.formatting.text import grouped, printable, write_text
from watcher.observability.watch_stats import Rate
from watcher.options import WatchOptions, end
from watcher.records.filters import record_filter
from watcher.records.record import Record
from watcher.records.record_files import RecordLines, open_lines
from watcher.records.redaction import Redaction
from watcher.shutdown import Overdue, Shutdown, exit_status
from watcher.time_machine.archives import Archive

if TYPE_CHECKING:
    from watcher.time_machine.redrive import HeldBatch

logger = logging.getLogger("watcher")


_File = Annotated[
    str,
    Parameter(
        completer=completers.files,
        help="dead letters: a file, sqs://QUEUE (deletes handled messages there), s3://BUCKET/PREFIX;"
        " or lines of --print-json; - for stdin",
    ),
]


def replay_command(line: CommandLine) -> Callable[..., int]:
    """Hands the records of a file to handlers, with the options of a watch."""
    handlers = handler_flags.find_handlers(line)
    parts = [*delivery_options(), *options.declared_by(WatchOptions, "region", "profile")]

    def run(file: _File, /, *, origins: options.OriginsArgument, **values: object) -> int:
        return _replay(file, handler_flags.Choice(handlers, origins, values), values)

    return options.with_options(run, handler_flags.flags(handlers.values(), parts), parts)


def delivery_options() -> Iterator[inspect.Parameter]:
    """Yields the options of a watch that choose records and handle failures."""
    yield from options.declared_by(
        WatchOptions,
        *("until", "only", "key", "filters", "grep", "on_error", "stop_timeout"),
        *options.REDACT,
    )
    yield from options.declared_by(style.set_up)
    yield from options.declared_by(output.status_line)
    yield from handler_flags.CALLS


def _replay(name: str, choice: handler_flags.Choice, values: Values) -> int:
    """Replays dead letters; returns 1 if a handler failed again or a line is unreadable.

    A signal ends it with a closing line and status 128 plus the signal's number.
    """
    options.call(style.set_up, values)
    aws = AwsConfig(values["region"], values["profile"])
    on_error = FailurePolicy.parse(values["on_error"] or "log", aws)
    with _open_source(name, on_error, aws) as (file, source):
        handlers = choice.load()
        if not handlers:
            raise UsageError("choose the handlers to replay to, such as --print-record")
        matches = filter_of(values)
        replay = RecordLines(file or source or (), source.keep if source else None)
        dispatcher = Dispatcher(handlers, on_error, shutdown=Shutdown(values["stop_timeout"]))
        with options.call(output.status_line, values) as line:
            status = None
            if line is not None and file is not None:
                status = ReplayStatus(line, replay, "replayed", _share_of(file, replay))
            step = ReplayDelivery(
                replay, matches, options.redaction(values), dispatcher, status, source
            )
            with nullcontext() if source is None else blaming(name):
                step.run()
    ended = dispatcher.shutdown.signal
    failures, left = dispatcher.failures, dispatcher.pending_count
    left_out = f"{replay.filtered} filtered out, " if replay.filtered else ""
    unprocessed = f", {left} not processed" if left else ""
    replayed = replay.records - replay.filtered - left
    logger.info(
        f"{'Ended early' if ended else 'Done'}: {replayed} replayed, "
        f"{left_out}{failures} failed, {replay.unreadable} unreadable{unprocessed}"
    )
    is_bad = bool(failures or replay.unreadable)
    return exit_status(ended, ends_by_itself=True) or int(is_bad)


def filter_of(values: Values) -> Callable[[Record], bool] | None:
    """Returns the filter that the options make; None where all records match. Raises UsageError."""
    matches = options.record_filter(values)
    last = end(values["until"], "trim-horizon")
    if last is None:
        return matches

    def made_in_time(record: Record) -> bool:
        created = record.created_at
        return (created is None or created <= last) and (matches is None or matches(record))

    return made_in_time


class RecordSource(Protocol):
    """The records to hand over, in order, with their count."""

    records: int
    filtered: int
    """Records that were filtered out, counted by who takes them."""
    unreadable: int
    """The lines that are no record, or the messages that name none."""

    def __iter__(self) -> Iterator[Record]:
        """Yields the records."""


@dataclass
class ReplayDelivery:
    """Hands records to handlers, by their policies, until a signal ends it."""

    source: RecordSource
    matches: Callable[[Record], bool] | None
    redaction: Redaction | None
    """Hides parts of the records that pass the matches."""
    dispatcher: Dispatcher
    status: ReplayStatus | None
    letters: LetterSource | None = None
    _unhandled: int = 0

    def run(self) -> None:
        """Hand over the records that pass the matches, if there is one; close the handlers."""
        shutdown = self.dispatcher.shutdown

        def stop() -> None:
            shutdown.request()
            if not shutdown.interruptible:  # waiting for the next line, it may be for long
                raise KeyboardInterrupt

        with shutdown.handle_signals(stop):
            try:
                self._hand_over()
            except OutputClosed:
                pass
            except Overdue as error:
                self.source.records -= 1
                logger.warning(str(error))
            except KeyboardInterrupt:
                pass
            finally:
                self.dispatcher.close()

    def _hand_over(self) -> None:
        dispatcher, shutdown = self.dispatcher, self.dispatcher.shutdown
        for record in self.source:
            self._settle(but_last=True)
            if self.matches is None or self.matches(record):
                shown = record if self.redaction is None else self.redaction(record)
                with shutdown.may_interrupt():
                    dispatcher.start_stream(record.stream)
                    dispatcher.deliver(shown)
            else:
                self.source.filtered += 1
                if self.letters is not None:
                    self.letters.keep()
            if shutdown.requested:
                break
            if self.status is not None and self.status.is_due():
                dispatcher.flush()
                self.status.draw(dispatcher.failures)
        dispatcher.drain()
        dispatcher.flush()
        self._settle()

    def _settle(self, *, but_last: bool = False) -> None:
        """Reports each letter as done or failed once no batch holds it."""
        if self.letters is None or self.dispatcher.pending_count:
            return
        self.dispatcher.flush()
        before, self._unhandled = self._unhandled, self.dispatcher.unhandled
        self.letters.acknowledge(went_well=self._unhandled == before, but_last=but_last)


def refuse_as_dead_letters(on_error: FailurePolicy, name: str) -> None:
    """Raises UsageError if dead letters would go to the place being read."""
    other = on_error.dead_letters
    if isinstance(other, str) and other and Path(other).resolve() == Path(name).resolve():
        text = f"{name} can't be read and take new dead letters; choose another place"
        raise UsageError(text, "on_error")


@contextmanager
def _open_source(
    name: str, on_error: FailurePolicy, aws: AwsConfig
) -> Iterator[tuple[IO[bytes] | None, LetterSource | None]]:
    """Yields the file, or the queue or bucket. Raises UsageError."""
    refuse_as_dead_letters(on_error, name)
    if name == "-":
        yield sys.stdin.buffer, None
    elif (source := open_letters(name, aws)) is not None:
        with closing(source):
            yield None, source
    else:
        try:
            file = open(name, "rb")
        except OSError as error:
            raise UsageError(f"can't read {name}: {error.strerror}") from None
        with file:
            yield file, None


class ReplayStatus:
    """Shows the progress of a replay in the status line."""

    def __init__(
        self, line: Line, source: RecordSource, word: str, share: Callable[[], float | None]
    ) -> None:
        """`share` returns the part that is done, or None."""
        self._line = line
        self._source = source
        self._word = word
        self._share = share
        self._rate = Rate()
        self._due = 0.0

    def is_due(self) -> bool:
        """True if it is time to draw again."""
        return time.monotonic() >= self._due

    def draw(self, failures: int) -> None:
        """Draws the progress."""
        self._due = time.monotonic() + COMMAND_TIMING.draw_seconds
        source, share = self._source, self._share()
        parts = [] if share is None else [bar(min(1.0, share))]
        parts += [f"{source.records:,} {self._word}"]
        parts += [f"{self._rate.at(source.records):,.0f}/s"]
        parts += [f"{failures:,} failed"] if failures else []
        parts += [f"{source.unreadable:,} unreadable"] if source.unreadable else []
        self._line.set(" | ".join(parts))


def _share_of(file: IO[bytes], replay: RecordLines) -> Callable[[], float | None]:
    """Returns a function that tells the share of a file read so far."""
    status = os.fstat(file.fileno())
    size = status.st_size if stat.S_ISREG(status.st_mode) else 0
    return lambda: replay.bytes / size if size else None


# `redrive`

_MOST_HELD = 100_000
"""SQS lets some more be received and not deleted."""
_TOPIC = re.compile("arn:[^:]*:sns:")
_QUEUE_NAME = re.compile(r"[\w-]{1,75}(\.fifo)?")

_QueueOrFile = Annotated[
    str,
    Parameter(
        name="QUEUE|FILE",
        completer=completers.files,
        help="the mapping's destination: a queue's name, URL or ARN (deletes handled messages "
        "there), a file with its messages, or - for stdin",
    ),
]
_ArchiveFolder = Annotated[
    str | None,
    Parameter(
        metavar="FOLDER",
        completer=completers.files,
        help="an archive with records that the stream no longer has",
    ),
]
_DryRun = Annotated[
    bool, Parameter(negative=(), help="fetch and count the records; call no handler")
]


def redrive_command(line: CommandLine) -> Callable[..., int]:
    """Fetches the records of failed batches, and hands them to handlers."""
    handlers = handler_flags.find_handlers(line)
    parts = [*delivery_options(), *options.declared_by(WatchOptions, *options.AWS)]

    def run(
        queue_or_file: _QueueOrFile,
        /,
        *,
        archive: _ArchiveFolder = None,
        dry_run: _DryRun = False,
        origins: options.OriginsArgument,
        **values: object,
    ) -> int:
        choice = handler_flags.Choice(handlers, origins, values)
        if not (choice.chosen or dry_run):
            raise UsageError("choose the handlers to redrive to, such as --lambda app.handler")
        if dry_run:
            origins.log_from_folder()
        return _redrive(queue_or_file, archive, None if dry_run else choice, values)

    return options.with_options(run, handler_flags.flags(handlers.values(), parts), parts)


def _redrive(
    queue_or_file: str, archive: str | None, choice: handler_flags.Choice | None, values: Values
) -> int:
    """Hands the records to the chosen handlers; without handlers, only counts them."""
    options.call(style.set_up, values)
    aws = options.connection(values)
    on_error = FailurePolicy.parse(values["on_error"] or "log", aws)
    refuse_as_dead_letters(on_error, queue_or_file)
    redaction = options.redaction(values)
    files = None if archive is None else Archive(Path(archive), ("parquet", "json"))
    shutdown = Shutdown(values["stop_timeout"])
    try:
        with _open_messages(queue_or_file, aws, shutdown) as messages:
            step = _RedriveRun(messages, values, files, redaction)
            with blaming(queue_or_file) if messages.queue else nullcontext():
                if choice is not None:
                    return step.hand_over(choice, on_error, shutdown)
                with _interrupted_by_signals(shutdown):
                    return step.count()
    except KeyboardInterrupt:
        if not shutdown.signal:
            raise
        return exit_status(shutdown.signal, ends_by_itself=True)


def _interrupted_by_signals(shutdown: Shutdown) -> AbstractContextManager[None]:
    """Ends the reading at any signal, so that the queue shows its messages again."""

    def stop() -> None:
        raise KeyboardInterrupt

    return shutdown.handle_signals(stop)


class _Messages(NamedTuple):
    """The messages that an event source mapping left for failed batches."""

    held: list[HeldBatch]
    unreadable: int
    queue: HeldMessages | None = None


@contextmanager
def _open_messages(queue_or_file: str, aws: AwsConfig, shutdown: Shutdown) -> Iterator[_Messages]:
    """Yields the messages of a file or a queue; the queue shows unhandled ones again at the end."""
    name = _queue_in(queue_or_file)
    if name is None:
        with open_lines(queue_or_file) as file:
            text = file.read().decode(errors="replace")
        messages = _read(("", [each]) for each in failed_batches(text))
        if messages.unreadable and not messages.held:
            raise UsageError(f"{queue_or_file} has no message of a Lambda mapping's destination")
        yield messages
        return
    with blaming(queue_or_file):
        queue = HeldMessages.of(name, aws)
    with closing(queue):
        with blaming(queue_or_file), _interrupted_by_signals(shutdown):
            received = itertools.islice(queue.receive(), _MOST_HELD)
            found = ((handle, [*failed_batches(body)]) for handle, body in received)
            messages = _read(found, queue)
        if len(messages.held) + messages.unreadable == _MOST_HELD:
            logger.warning(f"{_MOST_HELD:,} messages at a time: run it again for the rest")
        yield messages


def _queue_in(queue_or_file: str) -> str | None:
    """Returns the queue of that name; None for a file. Raises UsageError."""
    if queue_or_file.startswith(("s3://", "sns://")) or _TOPIC.match(queue_or_file):
        raise UsageError(
            f"{queue_or_file}: give the queue that is subscribed to it; the objects of an S3 "
            "destination hold whole records, for replay"
        )
    if queue_or_file.startswith(("sqs://", "https://", "http://", "arn:")):
        return queue_or_file.removeprefix("sqs://")
    is_file = (
        queue_or_file == "-"
        or Path(queue_or_file).exists()
        or not _QUEUE_NAME.fullmatch(queue_or_file)
    )
    return None if is_file else queue_or_file


def _read(
    messages: Iterable[tuple[str, Sequence[FailedBatch | UnreadableMessage]]],
    queue: HeldMessages | None = None,
) -> _Messages:
    """Returns the failed batches and the number of other messages, which it logs."""
    from watcher.time_machine.redrive import HeldBatch

    held: list[HeldBatch] = []
    unreadable = 0
    for number, (handle, found) in enumerate(messages, 1):
        match found:
            case [FailedBatch() as batch]:
                held.append(HeldBatch(batch, handle))
            case [UnreadableMessage(reason)]:
                unreadable += 1
                logger.warning(
                    f"message {number} names no records of a stream: {printable(reason)}"
                )
            case _:
                unreadable += 1
                logger.warning(f"message {number} holds {len(found)} messages: one is expected")
    return _Messages(held, unreadable, queue)


class _RedriveRun:
    """Fetches the records that messages name, and hands them to handlers."""

    def __init__(
        self,
        messages: _Messages,
        values: Values,
        archive: Archive | None,
        redaction: Redaction | None,
    ) -> None:
        from watcher.aws.connect import for_worker  # not for help: they take boto3
        from watcher.time_machine.redrive import Redrive

        self._redaction = redaction
        self._queue = messages.queue
        self._values = values
        self._aws = options.connection(values)
        # What the mapping itself leaves out is not missing; the other filters choose from the rest.
        self._of_mapping = record_filter(values["filters"])
        self._of_run = filter_of({**values, "filters": None})
        self._dispatcher: Dispatcher | None = None
        self._unhandled = 0
        self._redrive = Redrive(
            messages.held,
            lambda arn: for_worker(self._aws, arn),
            handled=self._handled,
            done=self._done,
            archive=archive,
        )
        self._redrive.unreadable = messages.unreadable

    def count(self) -> int:
        """Fetches the records, and prints their number and times."""
        redrive = self._redrive
        counts = Counter(record.stream for record in redrive if self._matches(record))
        for stream in dict.fromkeys(each.stream for each in redrive.batches):
            batches = [each for each in redrive.batches if each.stream == stream]
            times = [
                each.astimezone()
                for batch in batches
                for each in (batch.since, batch.until)
                if each
            ]
            made = f", made {time_text(min(times))} to {time_text(max(times))}" if times else ""
            text = f"{grouped(len(batches), 'range')}, {grouped(counts[stream], 'record')}{made}"
            write_text(f"{printable(table_name(stream))}: {text}\n")
        logger.info("Dry run: nothing is handed over, no message is deleted")
        return int(bool(redrive.unreadable or redrive.lost))

    def hand_over(
        self, choice: handler_flags.Choice, on_error: FailurePolicy, shutdown: Shutdown
    ) -> int:
        """Hands the records over; returns 1 if a handler failed or records are missing."""
        redrive, values = self._redrive, self._values
        handler_flags.set_region([each.stream for each in redrive.batches], values["region"])
        dispatcher = self._dispatcher = Dispatcher(
            choice.load(), on_error, shutdown=shutdown, during_wait=self._keep_hidden
        )
        with options.call(output.status_line, values) as line:
            status = None
            if line is not None:
                status = ReplayStatus(line, redrive, "redriven", self._share)
            ReplayDelivery(redrive, self._matches, self._redaction, dispatcher, status).run()
        return self._report(dispatcher)

    def _report(self, dispatcher: Dispatcher) -> int:
        redrive, ended, failures = self._redrive, dispatcher.shutdown.signal, dispatcher.failures
        left = dispatcher.pending_count
        left_out = f"{redrive.filtered} filtered out, " if redrive.filtered else ""
        unprocessed = f", {left} not processed" if left else ""
        deleted = " and deleted" if self._queue else ""
        gone = f", {redrive.lost} gone" if redrive.lost else ""
        logger.info(
            f"{'Ended early' if ended else 'Done'}: {redrive.records - redrive.filtered - left} "
            f"redriven, {left_out}{failures} failed, {redrive.unreadable} unreadable{unprocessed}; "
            f"{redrive.done} of {grouped(len(redrive.batches), 'range')} handled{deleted}{gone}"
        )
        is_bad = bool(failures or redrive.unreadable or redrive.lost)
        return exit_status(ended, ends_by_itself=True) or int(is_bad)

    def _matches(self, record: Record) -> bool:
        """True for a record to hand over; notes it for its message."""
        self._keep_hidden()
        if self._of_mapping is not None and not self._of_mapping(record):
            self._redrive.pass_over()
            return False
        if self._of_run is not None and not self._of_run(record):
            self._redrive.keep()
            return False
        return True

    def _handled(self) -> bool:
        """Flushes the handlers; returns True if they processed every record."""
        self._keep_hidden()
        dispatcher = self._dispatcher
        if dispatcher is None:
            return True
        dispatcher.drain()
        dispatcher.flush()
        before, self._unhandled = self._unhandled, dispatcher.unhandled
        return before == self._unhandled and not dispatcher.pending_count

    def _done(self, each: HeldBatch) -> None:
        if self._queue is not None and self._dispatcher is not None:
            self._queue.delete(each.handle)

    def _keep_hidden(self) -> None:
        if self._queue is not None:
            self._queue.keep_hidden()

    def _share(self) -> float | None:
        return self._redrive.begun / max(1, len(self._redrive.batches))
