"""`streams`: which streams there are."""

from __future__ import annotations

import logging
import sys

from watcher import cli
from watcher.cli import options
from watcher.errors import ServiceError, StreamError
from watcher.service.client import StreamsClient

logger = logging.getLogger("watcher")


def parser(arguments: list[str]) -> options.Parser:
    """The region, and what of it."""
    made = options.parser("streams", cli.sentence("streams"))
    made.add_argument("--table", metavar="TABLE", help="only this table's streams")
    options.add(made, "aws", options.AWS)
    return made


def main(arguments: list[str]) -> int:
    """Print a line per stream: table, when it was enabled, ARN."""
    parsed = parser(arguments).parse_args(arguments)
    cli.set_verbose(parsed.verbose)
    found = 0
    try:
        for stream in StreamsClient(options.connection(parsed)).list_streams(parsed.table):
            sys.stdout.write(f"{stream.table}\t{stream.label}\t{stream.arn}\n")
            found += 1
    except ServiceError as error:
        raise StreamError(str(error)) from error
    if not found:
        where = f"on table {parsed.table}" if parsed.table else "in this region"
        logger.info(f"No streams {where}")
    return 0
