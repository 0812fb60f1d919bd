"""The default command: watches streams for the chosen handlers, or for the live view."""

from __future__ import annotations

import importlib.util
import logging
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING

from watcher.cli import handler_flags, options, output
from watcher.cli.command_line import COMMANDS, PROGRAM
from watcher.cli.options import Option, Values
from watcher.declared import Opt
from watcher.delivery.handler_modules import HandlerModule
from watcher.errors import StreamError, UsageError, did_you_mean
from watcher.formatting import style
from watcher.options import ReadOptions, WatchOptions
from watcher.version import install

if TYPE_CHECKING:
    from watcher.aws.model import ShardKey
    from watcher.cli.command_line import CommandLine
    from watcher.delivery.handler import Handler
    from watcher.live.app import RunWatch
    from watcher.live.changes import ChangeLine
    from watcher.observability.watch_stats import Display, Totals
    from watcher.records.record import Record

logger = logging.getLogger("watcher")

_FIRST = f"""\
See every change of a DynamoDB table, live and in order. To begin with:
  {PROGRAM} demo                      a small shop to look at; no AWS account needed
  {PROGRAM} TABLE --print-summary     your own table, by its name or ARN
  {PROGRAM} streams                   which streams there are
  {PROGRAM} --help                    all that it can do
"""

_ENDS = ("until", "max_records")
"""The options that give a watch an end, beside `--no-follow`."""

_ENGINE = Option(
    "engine",
    str,
    "processes",
    Opt(
        "where handlers run: processes here (default), or executors of spark",
        "ENGINE",
        "spark",
        choices=("processes", "spark"),
    ),
)


def every_option() -> list[Option]:
    """Returns the options of a watch, without those of handlers."""
    shared = [each.name for each in fields(ReadOptions)]
    return [
        *sorted(options.declared_by(WatchOptions), key=lambda each: each.name in shared),
        *options.declared_by(style.set_up),
        *handler_flags.CALLS,
        LIVE,
        _ENGINE,
    ]


def watch_command(line: CommandLine) -> options.Command:
    """Watches until it is stopped; the engine and the handlers found add options."""
    handlers, parts = handler_flags.find_handlers(line), every_option()
    if line.peek(_ENGINE).last == "spark":
        from watcher.cli.spark_commands import watch_on_spark

        return watch_on_spark(handlers, parts)

    def run(*streams: options.Streams, origins: options.Origins, **values: object) -> int:
        if not (streams or origins.typed or values["everything"]):
            sys.stderr.write(_FIRST)
            return UsageError.exit_status
        try:
            return _watch(streams, handlers, origins, values)
        except StreamError as error:
            first = "".join(streams[:1])
            if f"no table {first!r}" in str(error):
                error.add(did_you_mean(first, COMMANDS, "the command "))
            raise

    return options.with_options(run, handler_flags.flags(handlers.values(), parts), parts)


def _watch(
    streams: Sequence[str],
    handlers: dict[str, HandlerModule],
    origins: options.Origins,
    values: Values,
) -> int:
    options.call(style.set_up, values)
    if origins.typed.count("checkpoint") > 1:  # one of them would stay as it is, and nobody say so
        raise UsageError("give one: it holds all streams of a watch", "checkpoint")
    choice = handler_flags.Choice(handlers, origins, values)
    if choice.has_lambda:
        handler_flags.set_environment(streams, values)
    from watcher.watching import watch  # not before: it needs boto3, which --help does not

    if values["live"]:
        own = choice.load()
        settings = options.values(WatchOptions, values)

        def run(handler: Handler, display: Display) -> Totals:
            return watch(streams, [*own, handler], **settings, display=display)

        shown = view_live(streams, choice.chosen, run, values)
        if shown is not None:
            logger.info(closing_line(shown))
        return 0
    loaded = choice.load(handler_flags.DEFAULT_HANDLER)
    from watcher.cli.status import WatchStatus

    with output.status_line() as line:
        display = None if line is None else WatchStatus(line)
        try:
            totals = watch(streams, loaded, **options.values(WatchOptions, values), display=display)
        except StreamError as error:
            if error.totals is not None:
                logger.info(closing_line(error.totals))
            raise
    logger.info(closing_line(totals))
    # Without an end of its own, a watch has done its work when it is stopped.
    has_end = not values["follow"] or any(values[name] is not None for name in _ENDS)
    return int(has_end and totals.failures > 0)


def closing_line(totals: Totals) -> str:
    """Returns a watch's totals in one line."""
    from watcher.formatting.text import counted

    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(totals.kinds.items()))
    parts = [counted(totals.records, "record") + (f" ({kinds})" if kinds else "")]
    parts.append(counted(totals.shards, "shard"))
    if totals.filtered:
        parts.insert(1, f"{totals.filtered} filtered out")
    others = totals.failures - totals.unhandled - totals.dead_letters
    for count, what in (
        (totals.restarts, "restart"),
        (totals.dead_letters, "dead letter"),
        (others, "handler failure"),
        (totals.losses, "DATA LOSS"),
    ):
        if count:
            parts.append(counted(count, what))
    if totals.unhandled:
        parts.append(f"{totals.unhandled} NOT HANDLED (see --on-error)")
    return "Done: " + ", ".join(parts)


# `--live`

LIVE = Option(
    "live",
    bool,
    False,
    Opt(
        "an interactive full-screen view (UI): follow and pause, search, differences, an "
        "item's history, shards; ? shows its keys",
        group="output",
        negative="",
    ),
)


def view_live(
    streams: Sequence[str],
    chosen: Sequence[str],
    watch: Callable[[Handler, Display], Totals],
    values: Values,
) -> Totals | None:
    """Shows a watch until it ends; None where it could not end in order. Raises WatcherError.

    `chosen` are the flags of the handlers beside the view; `watch` takes the view's handler and its
    display; `values` has the AWS options.
    """
    if importlib.util.find_spec("textual") is None:
        raise UsageError(f"this needs Textual: {install('live')}", "live")
    for flag in chosen:
        if flag.startswith("--print-"):
            raise UsageError(f"the view shows the changes itself: leave out {flag}", "live")
    if not sys.stdout.isatty():
        raise UsageError("it needs a terminal, and standard output is not one", "live")
    from watcher.live.watch_process import WatchProcess

    apart = WatchProcess(watch)
    try:
        return _shown(apart.run, streams, values)
    finally:
        apart.close()


def _shown(watch: RunWatch, streams: Sequence[str], values: Values) -> Totals | None:
    """Runs the view until the watch ends; returns its totals."""
    from watcher.live.app import LiveView, NotesHandler

    made = LiveView(watch, _history(values), _shards(streams, values))
    notes = NotesHandler(made)
    before = logger.handlers[:]
    logger.handlers[:] = [notes]
    try:
        made.stop_on_signals()
        totals = made.run()
    finally:
        made.join()
        logger.handlers[:] = before
        for record in notes.kept:
            logger.handle(record)
    if made.error is not None:
        raise made.error
    return totals


def _history(values: Values) -> Callable[[ChangeLine], Iterable[Record]]:
    def history(entry: ChangeLine) -> Iterable[Record]:
        from watcher.time_machine.history import history as item_history

        hidden = options.redaction(values)
        named = [] if hidden is None else [*filter(hidden.hides, entry.record.key)]
        if named:
            raise UsageError(f"{named[0]} is redacted: an item's history is found by its whole key")
        aws = {name: values[name] for name in options.AWS}
        redact = values.get("redact")
        return item_history(entry.shard_key.stream, key=entry.record.key, redact=redact, **aws)

    return history


def _shards(
    streams: Sequence[str], values: Values
) -> Callable[[set[str], Mapping[ShardKey, float], int], str]:
    def shards(seen: set[str], lags: Mapping[ShardKey, float], columns: int) -> str:
        from watcher.aws.connect import connect
        from watcher.cli.streams import tree
        from watcher.formatting.rows import cut

        named = [each for each in streams if not set("*?[") & {*each}]
        found = [connect(each, options.connection(values)) for each in seen or named]
        listings = [client.list_shards(arn) for client, arn in found]
        found_lines = (line for each in listings for line in tree(each, lags=lags))
        return "\n".join(cut(line, columns) for line in found_lines)

    return shards
