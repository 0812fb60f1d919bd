"""The default command: watch a stream and hand its records to the chosen handlers."""

from __future__ import annotations

import argparse
import logging
from typing import TYPE_CHECKING

from watcher import cli
from watcher.cli import choosing, defaults, options, pages, terminal
from watcher.delivery.handlers import Handler, find, load
from watcher.printing import style as output
from watcher.watching import watch

if TYPE_CHECKING:
    from watcher.engine.figures import Totals

logger = logging.getLogger("watcher")

DEFAULT_HANDLER = "print_record"


def main(arguments: list[str]) -> int:
    """Watch until stopped; 0 at a regular end."""
    handlers = find(choosing.folders(arguments))
    made = watch_parser(handlers, engine := _engine(arguments))
    if engine == "spark":
        from watcher.cli import watch_on_spark

        return watch_on_spark.watch(made, arguments, handlers, DEFAULT_HANDLER)
    parsed = made.parse_args(arguments)
    cli.set_verbose(parsed.verbose)
    output.set_up(**options.chosen(parsed, output.set_up))
    choosing.set_region(parsed)
    observers = choosing.load(parsed, handlers) or [load(handlers[DEFAULT_HANDLER])]
    from watcher.cli.status import Status  # not before: it needs boto3, which --help does not

    with terminal.status_line(**options.chosen(parsed, terminal.status_line)) as line:
        display = None if line is None else Status(line)
        totals = watch(parsed.stream, observers, **options.chosen(parsed), display=display)
    logger.info(closing_line(totals))
    return 0


def closing_line(totals: Totals) -> str:
    """What the watch has done, in one line."""
    from watcher.printing.plural import counted

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


def _engine(arguments: list[str]) -> str:
    """The `--engine`: Spark's brings options of its own."""
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    first.add_argument("--engine", nargs="?")
    engine: str | None = first.parse_known_args(arguments)[0].engine
    return str(engine or defaults.raw("watch", "engine") or "processes")


def parser(arguments: list[str]) -> options.Parser:
    """Every option there is, those of the handlers found included."""
    return watch_parser(find(choosing.folders(arguments)), _engine(arguments))


def watch_parser(handlers: dict[str, Handler], engine: str = "processes") -> options.Parser:
    """The same, with these handlers."""
    description = "See every change of a DynamoDB table, live and in order."
    made = options.parser("", description, "STREAM [--HANDLER ...]")
    options.add_stream(made)
    for name in pages.GROUPS:
        made.group(name)
    choosing.add_flags(made.group("handlers"), handlers.values())
    choosing.add_calls(made)
    choosing.add_folders(made.group("handlers"))
    options.add(made, "start", [name for name in options.flagged() if name not in options.AWS])
    options.add(made, "output", function=output.set_up)
    options.add(made, "output", function=terminal.status_line)
    made.group("spark").add_argument(
        "--engine",
        choices=("processes", "spark"),
        default="processes",
        help="where handlers run: here (default), or on Spark's executors",
    )
    if engine == "spark":
        from watcher.cli import spark

        options.add(made, "spark", function=spark.module("session").start)
    options.add(made, "aws", options.AWS)
    return made
