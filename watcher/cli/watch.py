"""The default command: watch a stream and hand its records to the chosen handlers."""

from __future__ import annotations

import argparse
import logging

from watcher import cli, output
from watcher.cli import choosing, options, terminal
from watcher.cli.status import Status
from watcher.handlers import Handler, find, load
from watcher.snapshot import Totals
from watcher.text import counted
from watcher.watching import watch

logger = logging.getLogger("watcher")

DEFAULT_HANDLER = "print_record"


def main(arguments: list[str]) -> int:
    """Watch until stopped; 0 at a regular end."""
    handlers = find(choosing.folders(arguments))
    parser = watch_parser(handlers)
    if _engine(arguments) == "spark":
        from watcher.cli import watch_on_spark

        return watch_on_spark.watch(parser, arguments, handlers, DEFAULT_HANDLER)
    parsed = parser.parse_args(arguments)
    cli.set_verbose(parsed.verbose)
    output.set_up(**options.chosen(parsed, output.set_up))
    choosing.set_region(parsed)
    observers = choosing.load(parsed, handlers) or [load(handlers[DEFAULT_HANDLER])]
    with terminal.status_line(**options.chosen(parsed, terminal.status_line)) as line:
        display = None if line is None else Status(line)
        totals = watch(parsed.stream, observers, **options.chosen(parsed), display=display)
    logger.info(closing_line(totals))
    return 0


def closing_line(totals: Totals) -> str:
    """What the watch has done, in one line."""
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(totals.kinds.items()))
    parts = [counted(totals.records, "record") + (f" ({kinds})" if kinds else "")]
    parts.append(counted(totals.shards, "shard"))
    if totals.filtered:
        parts.insert(1, f"{totals.filtered} filtered out")
    for count, what in (
        (totals.restarts, "restart"),
        (totals.failures, "handler failure"),
        (totals.losses, "DATA LOSS"),
    ):
        if count:
            parts.append(counted(count, what))
    return "Done: " + ", ".join(parts)


def _add_engine(group: argparse._ActionsContainer) -> None:
    group.add_argument(
        "--engine",
        choices=("processes", "spark"),
        default="processes",
        help="where handlers run: here (default), or on Spark's executors",
    )


def _engine(arguments: list[str]) -> str:
    """The `--engine`: Spark's brings options of its own."""
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    first.add_argument("--engine", nargs="?")
    engine: str | None = first.parse_known_args(arguments)[0].engine
    return engine or "processes"


def watch_parser(handlers: dict[str, Handler]) -> options.Parser:
    """Every option there is, those of the handlers found included."""
    parser = options.parser("", "Watch every change of a DynamoDB table, live and in order.")
    parser.usage = "python -m watcher STREAM [--HANDLER ...] [options]"
    parser.epilog = "other commands: " + "; ".join(
        f"{name}: {text}" for name, text in cli.COMMANDS.items() if name != "watch"
    )
    parser.add_argument(
        "stream", metavar="STREAM", help="a stream ARN, a table ARN or a table name"
    )
    group = parser.add_argument_group(
        "handlers", "modules in handlers/; each gets every change (default: --print-record)"
    )
    lambdas = parser.add_argument_group("Lambda", choosing.LAMBDAS)
    watching = parser.add_argument_group("watching")
    printing = parser.add_argument_group("output")
    options.add(printing, function=output.set_up)
    options.add(printing, function=terminal.status_line)
    _add_engine(watching)
    aws = parser.add_argument_group("AWS")
    options.add(watching, [name for name in options.flagged() if name not in options.AWS])
    options.add(aws, options.AWS)
    choosing.add_folders(watching)
    choosing.add_flags(group, handlers.values())
    choosing.add_calls(group, lambdas)
    return parser
