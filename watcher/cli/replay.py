"""`replay`: hands records that were not processed to handlers again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Annotated

from watcher.aws.config import AwsConfig, blaming
from watcher.cli import handler_flags, options
from watcher.cli.command_line import CommandLine
from watcher.cli.options import Values
from watcher.declared import Opt
from watcher.delivery.dead_letters import QueueLetters, open_letters
from watcher.delivery.dispatcher import Dispatcher
from watcher.delivery.failures import FailurePolicy
from watcher.delivery.output import OutputClosed
from watcher.errors import UsageError
from watcher.formatting import style
from watcher.options import WatchOptions
from watcher.records.record import Record
from watcher.records.record_files import RecordLines, open_lines
from watcher.records.redaction import Redaction
from watcher.shutdown import Overdue, Shutdown, exit_status

logger = logging.getLogger("watcher")

_File = Annotated[
    str,
    Opt(
        "dead letters: a file, sqs://QUEUE (deletes handled messages there), s3://BUCKET/PREFIX;"
        " or lines of --print-json; - for stdin",
    ),
]


def replay_command(line: CommandLine) -> options.Command:
    """Hands the records of a file to handlers, with the options of a watch."""
    handlers = handler_flags.find_handlers(line)
    parts = [*_delivery_options(), *options.declared_by(WatchOptions, "region", "profile")]

    def run(file: _File, /, *, origins: options.Origins, **values: object) -> int:
        return _replay(file, handler_flags.Choice(handlers, origins, values), values)

    return options.with_options(run, handler_flags.flags(handlers.values(), parts), parts)


def _delivery_options() -> Iterator[options.Option]:
    """Yields the options of a watch that choose records and handle failures."""
    yield from options.declared_by(
        WatchOptions,
        *("only", "key", "filters", "grep", "on_error", "stop_timeout"),
        "redact",
    )
    yield from options.declared_by(style.set_up)
    yield from handler_flags.CALLS


def _replay(name: str, choice: handler_flags.Choice, values: Values) -> int:
    """Replays dead letters; returns 1 if a handler failed again or a line is unreadable.

    A signal ends it with a closing line and status 128 plus the signal's number.
    """
    options.call(style.set_up, values)
    aws = AwsConfig(values["region"], values["profile"])
    on_error = FailurePolicy.parse(values["on_error"] or "log", aws)
    with _open_source(name, on_error, aws) as (file, source):
        if choice.has_lambda:
            handler_flags.set_environment((), values)
        handlers = choice.load()
        if not handlers:
            raise UsageError("choose the handlers to replay to, such as --print-record")
        matches = options.record_filter(values)
        letters = source if isinstance(source, QueueLetters) else None
        replay = RecordLines(file or source or (), letters.keep if letters else None)
        dispatcher = Dispatcher(handlers, on_error, shutdown=Shutdown(values["stop_timeout"]))
        step = _ReplayDelivery(replay, matches, options.redaction(values), dispatcher, letters)
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


@dataclass
class _ReplayDelivery:
    """Hands records to handlers, by their policies, until a signal ends it."""

    source: RecordLines
    matches: Callable[[Record], bool] | None
    redaction: Redaction | None
    """Hides parts of the records that pass the matches."""
    dispatcher: Dispatcher
    letters: QueueLetters | None = None
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
                    dispatcher.deliver(shown)
            else:
                self.source.filtered += 1
                if self.letters is not None:
                    self.letters.keep()
            if shutdown.requested:
                break
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


@contextmanager
def _open_source(
    name: str, on_error: FailurePolicy, aws: AwsConfig
) -> Iterator[tuple[IO[bytes] | None, QueueLetters | Iterator[bytes] | None]]:
    """Yields the file, or the queue or bucket. Raises UsageError."""
    other = on_error.dead_letters
    if isinstance(other, str) and other and Path(other).resolve() == Path(name).resolve():
        text = f"{name} can't be read and take new dead letters; choose another place"
        raise UsageError(text, "on_error")
    if (source := open_letters(name, aws)) is not None:
        with closing(source) if isinstance(source, QueueLetters) else nullcontext():
            yield None, source
    else:
        with open_lines(name) as file:
            yield file, None
