"""`demo`: a small shop writes to an embedded DynamoDB, and the watch shows its changes."""

from __future__ import annotations

import importlib.util
import json
import logging
import math
import os
import subprocess
import sys

from watcher import cli
from watcher.cli import choosing, options, terminal
from watcher.cli.watch import closing_line
from watcher.delivery.handlers import Handler, find, load
from watcher.errors import StreamError, UsageError
from watcher.printing import style as output
from watcher.watching import watch

logger = logging.getLogger("watcher")

CHANGES = 60


def parser(arguments: list[str]) -> options.Parser:
    """A watch's options for printing, without a stream."""
    return _parser(find(choosing.folders(arguments, "demo")))


def _parser(handlers: dict[str, Handler]) -> options.Parser:
    made = options.parser("demo", cli.sentence("demo"), "[--HANDLER ...]")
    made.add_argument(
        "--seconds", metavar="SECONDS", type=float, default=18.0, help="how long the shop is open"
    )
    choosing.add_flags(made.group("handlers"), handlers.values())
    choosing.add_folders(made.group("handlers"))
    options.add(made, "output", function=output.set_up)
    options.add(made, "output", function=terminal.status_line)
    return made


def main(arguments: list[str]) -> int:
    """Show the shop's changes for some 20 seconds, or until Ctrl-C."""
    handlers = find(choosing.folders(arguments, "demo"))
    parsed = _parser(handlers).parse_args(arguments)
    cli.set_verbose(parsed.verbose)
    output.set_up(**options.chosen(parsed, output.set_up))
    if not 0 <= parsed.seconds < math.inf:
        raise UsageError(f"--seconds {parsed.seconds:g}: give 0 or more seconds")
    observers = choosing.load(parsed, handlers) or [load(handlers["print_summary"])]
    if importlib.util.find_spec("moto") is None:
        raise UsageError("the demo needs the embedded DynamoDB: pip install 'watcher[demo]'")
    # Nothing here may reach a real account, whatever this shell is logged in to.
    credentials = {"AWS_ACCESS_KEY_ID": "demo", "AWS_SECRET_ACCESS_KEY": "demo"}
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        del os.environ[name]
    os.environ.update(credentials, AWS_EC2_METADATA_DISABLED="true")
    # The shop stands in a session of its own: Ctrl-C is for the watch.
    command = [sys.executable, "-m", "watcher.cli.shop", str(CHANGES), str(parsed.seconds)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as shop:
        try:
            assert shop.stdout is not None
            opening = shop.stdout.readline()
            if not opening:
                raise StreamError("the embedded DynamoDB did not start; -v shows more")
            place = json.loads(opening)
            flags = " ".join(handlers[each].flag for each in parsed.chosen or ["print_summary"])
            logger.info(f"$ python -m watcher {place['stream']} {flags}")
            from watcher.cli.status import Status

            with terminal.status_line(**options.chosen(parsed, terminal.status_line)) as line:
                totals = watch(
                    place["stream"],
                    observers,
                    start="trim_horizon",
                    max_records=CHANGES,
                    region="us-east-1",
                    endpoint_url=place["endpoint"],
                    display=None if line is None else Status(line),
                )
        finally:
            shop.terminate()
    logger.info(closing_line(totals))
    return 0
