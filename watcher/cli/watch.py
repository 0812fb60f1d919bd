"""The default command: watch a stream and hand its records to the chosen handlers."""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

from watcher import cli
from watcher.cli import options
from watcher.errors import UsageError
from watcher.handlers import Handler, find, load
from watcher.manager import Totals
from watcher.watching import watch

logger = logging.getLogger("watcher")

DEFAULT_HANDLER = "print_record"


def main(arguments: list[str]) -> int:
    """Watch until stopped; 0 at a regular end."""
    handlers = find(_folders(arguments))
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


def _folders(arguments: list[str]) -> list[Path]:
    """The `--handlers` folders: needed before the flags of what is in them can be parsed."""
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    first.add_argument("--handlers", action="append", type=Path, default=[])
    try:
        folders: list[Path] = first.parse_known_args(arguments)[0].handlers
    except argparse.ArgumentError as error:
        raise UsageError(str(error)) from None
    return folders


def _parser(handlers: dict[str, Handler]) -> argparse.ArgumentParser:
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
    watching.add_argument(
        "--handlers",
        dest="folders",
        metavar="DIR",
        action="append",
        help="one more folder of handler modules; repeatable",
    )
    taken: set[str] = set()
    for handler in handlers.values():
        flags = [handler.flag]
        if handler.initials and handler.initials not in taken:
            flags.append(handler.initials)
        taken.update(flags)
        try:
            group.add_argument(
                *flags,
                dest="chosen",
                action="append_const",
                const=handler.name,
                help=handler.description.replace("%", "%%"),
            )
        except argparse.ArgumentError:
            raise UsageError(
                f"handler {handler.path}: {handler.flag} is an option of watcher; rename the file"
            ) from None
    return parser
