"""The default command: watch a stream and hand its records to the chosen handlers."""

from __future__ import annotations

import logging

from watcher import cli
from watcher.cli import choosing, options
from watcher.handlers import Handler, find, load
from watcher.manager import Totals
from watcher.watching import watch

logger = logging.getLogger("watcher")

DEFAULT_HANDLER = "print_record"


def main(arguments: list[str]) -> int:
    """Watch until stopped; 0 at a regular end."""
    handlers = find(choosing.folders(arguments))
    parsed = _parser(handlers).parse_args(arguments)
    cli.set_verbose(parsed.verbose)
    observers = [load(handlers[name]) for name in parsed.chosen or [DEFAULT_HANDLER]]
    totals = watch(parsed.stream, observers, **options.chosen(parsed))
    logger.info(closing_line(totals))
    return 0


def closing_line(totals: Totals) -> str:
    """What the watch has done, in one line."""
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(totals.kinds.items()))
    parts = [_count(totals.records, "record") + (f" ({kinds})" if kinds else "")]
    parts.append(_count(totals.shards, "shard"))
    for count, what in (
        (totals.restarts, "restart"),
        (totals.failures, "handler failure"),
        (totals.losses, "DATA LOSS"),
    ):
        if count:
            parts.append(_count(count, what))
    return "Done: " + ", ".join(parts)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "es" if what.endswith("S") else "s")


def _parser(handlers: dict[str, Handler]) -> options.Parser:
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
    watching = parser.add_argument_group("watching")
    aws = parser.add_argument_group("AWS")
    options.add(watching, [name for name in options.flagged() if name not in options.AWS])
    options.add(aws, options.AWS)
    choosing.add_folders(watching)
    choosing.add_flags(group, handlers.values())
    return parser
