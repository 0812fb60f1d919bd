"""`redrive`: hands the records that a Lambda function failed on to handlers."""

from __future__ import annotations

import itertools
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from watcher.aws.arns import table_name
from watcher.aws.config import AwsConfig, blaming
from watcher.aws.connect import for_worker
from watcher.cli import completers, handler_flags, options, output
from watcher.cli.command_line import CommandLine
from watcher.cli.replay import (
    Delivery,
    ReplayStatus,
    delivery_options,
    filter_of,
    refuse_as_dead_letters,
)
from watcher.declared import Parameter
from watcher.delivery.dead_letters import HeldMessages
from watcher.delivery.dispatcher import Dispatcher
from watcher.delivery.failed_batches import FailedBatch, UnreadableMessage, failed_batches
from watcher.delivery.failures import FailurePolicy
from watcher.errors import UsageError
from watcher.formatting import style
from watcher.formatting.style import time_text
from watcher.formatting.terminal import write_text
from watcher.formatting.text import grouped, printable
from watcher.options import WatchOptions
from watcher.records.filters import record_filter
from watcher.records.record import Record
from watcher.records.record_files import open_lines
from watcher.records.redaction import Redaction
from watcher.shutdown import Shutdown
from watcher.time_machine.archives import Archive
from watcher.time_machine.redrive import HeldBatch, Redrive

logger = logging.getLogger("watcher")

_MOST_HELD = 100_000
"""SQS lets some more be received and not deleted."""
_TOPIC = re.compile("arn:[^:]*:sns:")
_QUEUE_NAME = re.compile(r"[\w-]{1,75}(\.fifo)?")

_Place = Annotated[
    str,
    Parameter(
        name="QUEUE|FILE",
        completer=completers.files,
        help="the mapping's destination: a queue's name, URL or ARN (what is handled is deleted "
        "there), a file with its messages, or - for stdin",
    ),
]
_ArchiveFolder = Annotated[
    str | None,
    Parameter(
        metavar="FOLDER",
        completer=completers.files,
        help="an archive that has what is no longer in the stream",
    ),
]
_DryRun = Annotated[
    bool, Parameter(negative=(), help="fetch the records and count them; hand over nothing")
]


def redrive_command(line: CommandLine) -> Callable[..., int]:
    """Fetches the records of failed batches, and hands them to handlers."""
    handlers = handler_flags.found(line)
    parts = [*delivery_options(), *options.of(WatchOptions, *options.AWS)]

    def run(
        place: _Place,
        /,
        *,
        archive: _ArchiveFolder = None,
        dry_run: _DryRun = False,
        given: options.Asked,
        **values: object,
    ) -> int:
        choice = handler_flags.Choice(handlers, given, values)
        if not (choice.chosen or dry_run):
            raise UsageError("choose the handlers to redrive to, such as --lambda app.handler")
        if dry_run:
            given.log_used()
        return _redrive(place, archive, None if dry_run else choice, values)

    return options.with_options(run, handler_flags.flags(handlers.values(), parts), parts)


def _redrive(
    place: str, archive: str | None, choice: handler_flags.Choice | None, values: dict[str, Any]
) -> int:
    """Hands the records to the chosen handlers; without handlers, only counts them."""
    options.call(style.set_up, values)
    aws = options.connection(values)
    on_error = FailurePolicy.parse(values["on_error"] or "log", aws)
    refuse_as_dead_letters(on_error, place)
    redaction = options.redaction(values)
    files = None if archive is None else Archive(Path(archive), ("parquet", "json"))
    shutdown = Shutdown(values["stop_timeout"])
    try:
        with _opened(place, aws, shutdown) as messages:
            step = _Run(messages, values, files, redaction)
            with blaming(place) if messages.queue else nullcontext():
                if choice is not None:
                    return step.hand_over(choice, on_error, shutdown)
                with _interrupted_by_signals(shutdown):
                    return step.count()
    except KeyboardInterrupt:
        if not shutdown.signal:
            raise
        return 128 + shutdown.signal


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
def _opened(place: str, aws: AwsConfig, shutdown: Shutdown) -> Iterator[_Messages]:
    """Yields the messages of a file or a queue; the queue shows unhandled ones again at the end."""
    name = _queue_in(place)
    if name is None:
        with open_lines(place) as file:
            text = file.read().decode(errors="replace")
        messages = _read(("", [each]) for each in failed_batches(text))
        if messages.unreadable and not messages.held:
            raise UsageError(f"{place} has no message of a Lambda mapping's destination")
        yield messages
        return
    with blaming(place):
        queue = HeldMessages.of(name, aws)
    with closing(queue):
        with blaming(place), _interrupted_by_signals(shutdown):
            received = itertools.islice(queue.receive(), _MOST_HELD)
            found = ((handle, [*failed_batches(body)]) for handle, body in received)
            messages = _read(found, queue)
        if len(messages.held) + messages.unreadable == _MOST_HELD:
            logger.warning(f"{_MOST_HELD:,} messages at a time: run it again for what is left")
        yield messages


def _queue_in(place: str) -> str | None:
    """Returns the queue of a place; None for a file. Raises UsageError."""
    if place.startswith(("s3://", "sns://")) or _TOPIC.match(place):
        raise UsageError(
            f"{place}: give the queue that is subscribed to it; the objects of an S3 destination "
            "hold whole records, for replay"
        )
    if place.startswith(("sqs://", "https://", "http://", "arn:")):
        return place.removeprefix("sqs://")
    is_file = place == "-" or Path(place).exists() or not _QUEUE_NAME.fullmatch(place)
    return None if is_file else place


def _read(
    messages: Iterable[tuple[str, Sequence[FailedBatch | UnreadableMessage]]],
    queue: HeldMessages | None = None,
) -> _Messages:
    """Returns the failed batches and the number of other messages, which it logs."""
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


class _Run:
    """Fetches the records that messages name, and hands them to handlers."""

    def __init__(
        self,
        messages: _Messages,
        values: dict[str, Any],
        archive: Archive | None,
        redaction: Redaction | None,
    ) -> None:
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
        """Hands the records over; returns 1 if a handler failed or records are missing.

        A signal ends it with a closing line and status 128 plus the signal's number.
        """
        redrive, values = self._redrive, self._values
        handler_flags.set_region([each.stream for each in redrive.batches], values["region"])
        dispatcher = self._dispatcher = Dispatcher(choice.load(), on_error, shutdown=shutdown)
        dispatcher.during_retry = self._keep_hidden
        with options.call(output.status_line, values) as line:
            status = None
            if line is not None:
                status = ReplayStatus(line, redrive, "redriven", self._share)
            Delivery(redrive, self._matches, self._redaction, dispatcher, status).run()
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
        return 128 + ended if ended else int(bool(failures or redrive.unreadable or redrive.lost))

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
