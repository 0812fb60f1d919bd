"""`replay`: hands records that were not processed to handlers again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

from watcher.aws.config import AwsConfig
from watcher.cli import handler_flags, options
from watcher.cli.command_line import CommandLine
from watcher.cli.options import Values
from watcher.declared import Opt
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

_File = Annotated[str, Opt("dead letters, or lines of --print-json; - for stdin")]


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
    other = on_error.dead_letters
    if isinstance(other, str) and other and Path(other).resolve() == Path(name).resolve():
        text = f"{name} can't be read and take new dead letters; choose another place"
        raise UsageError(text, "on_error")
    with open_lines(name) as file:
        if choice.has_lambda:
            handler_flags.set_environment((), values)
        handlers = choice.load()
        if not handlers:
            raise UsageError("choose the handlers to replay to, such as --print-record")
        matches, redaction = options.record_filter(values), options.redaction(values)
        replay = RecordLines(file)
        dispatcher = Dispatcher(handlers, on_error, shutdown=Shutdown(values["stop_timeout"]))
        _hand_over(replay, matches, redaction, dispatcher)
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


def _hand_over(
    records: RecordLines,
    matches: Callable[[Record], bool] | None,
    redaction: Redaction | None,
    dispatcher: Dispatcher,
) -> None:
    """Hands the records that match to the handlers, until a signal ends it; closes the handlers."""
    shutdown = dispatcher.shutdown

    def stop() -> None:
        shutdown.request()
        if not shutdown.interruptible:  # waiting for the next line, it may be for long
            raise KeyboardInterrupt

    with shutdown.handle_signals(stop):
        try:
            for record in records:
                if matches is None or matches(record):
                    with shutdown.may_interrupt():
                        dispatcher.deliver(record if redaction is None else redaction(record))
                else:
                    records.filtered += 1
                if shutdown.requested:
                    break
            dispatcher.drain()
            dispatcher.flush()
        except OutputClosed:
            pass
        except Overdue as error:
            records.records -= 1
            logger.warning(str(error))
        except KeyboardInterrupt:
            pass
        finally:
            dispatcher.close()
