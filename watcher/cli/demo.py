"""`demo`: a small shop writes to an embedded DynamoDB, and the watch shows its changes."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import logging
import math
import os
import shlex
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from watcher import safe_path
from watcher.cli import handler_flags, options, output
from watcher.cli.command_line import PROGRAM
from watcher.cli.options import Option, Values
from watcher.cli.watch import LIVE, closing_line, view_live
from watcher.declared import Opt
from watcher.errors import StreamError, UsageError
from watcher.formatting import style
from watcher.version import install

if TYPE_CHECKING:
    from watcher.cli.command_line import CommandLine
    from watcher.delivery.handler import Handler
    from watcher.observability.watch_stats import Display, Totals

logger = logging.getLogger("watcher")

CHANGES = 60
_KEPT = """
The shop stays open until Ctrl-C; it has the tables orders and customers. In another terminal:

  {line}

and there, for instance:

  {program} orders customers --print-diff
  {program} history orders --key PK=user-1 --key SK=order-1
  {program} undo orders --from {wrong_from} --until {wrong_until}

"""

_SECONDS = Option("seconds", float, 18.0, Opt("how long its changes take", "SECONDS"))
_KEEP = Option(
    "keep",
    bool,
    False,
    Opt("keep the shop open until Ctrl-C, for commands in another terminal", negative=""),
)


def demo_command(line: CommandLine) -> options.Command:
    """Shows a shop's changes for some 20 seconds, or until Ctrl-C."""
    handlers = handler_flags.find_handlers(line)
    parts = [_SECONDS, _KEEP, LIVE, *options.declared_by(style.set_up)]

    def run(*, origins: options.Origins, **values: object) -> int:
        return _demo(handler_flags.Choice(handlers, origins, values), values)

    return options.with_options(run, handler_flags.flags(handlers.values(), parts), parts)


def _demo(choice: handler_flags.Choice, values: Values) -> int:
    options.call(style.set_up, values)
    if not 0 <= values["seconds"] < math.inf:
        raise UsageError("give 0 or more seconds", "seconds", f"{values['seconds']:g}")
    handlers = choice.load(None if values["live"] else "print_summary")
    if importlib.util.find_spec("moto") is None:
        raise UsageError(f"the demo needs the embedded DynamoDB: {install('demo')}")
    # No account of the user's is in reach.
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        del os.environ[name]
    reach = dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), "demo")
    os.environ.update(reach, AWS_DEFAULT_REGION="us-east-1", AWS_EC2_METADATA_DISABLED="true")
    # The shop stands in a session of its own: Ctrl-C is for the watch.
    program = f"from watcher.cli import shop; shop.main({CHANGES}, {values['seconds']})"
    command = [*safe_path.interpreter(), "-c", program]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as shop:
        try:
            assert shop.stdout is not None
            opening = shop.stdout.readline()
            if not opening:
                raise StreamError("the embedded DynamoDB did not start; -v shows more")
            address = json.loads(opening)
            os.environ["AWS_ENDPOINT_URL"] = address["endpoint"]
            opened = datetime.fromisoformat(address["opened"])
            first = ["--live"] if values["live"] else [] if choice.chosen else ["--print-summary"]
            logger.info(f"$ {PROGRAM} orders {' '.join([*first, *choice.chosen])}")
            totals = _watched(opened, handlers, choice.chosen, values)
            if totals is not None:
                logger.info(closing_line(totals))
            if values["keep"]:
                _keep(shop, opened)
        finally:
            shop.terminate()
    return 0


def _keep(shop: subprocess.Popen[bytes], opened: datetime) -> None:
    """Prints how to reach the shop from another terminal, and waits for Ctrl-C."""
    assert shop.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # it has ended by itself, which is said below
        os.write(shop.stdin.fileno(), b"seen\n")
    reach = [f"{name}={os.environ[name]}" for name in os.environ if name.startswith("AWS_")]
    line = f"export {' '.join(reach)}"
    activate = Path(sys.prefix) / "bin" / "activate"
    if sys.prefix != sys.base_prefix and activate.exists():
        line = f"source {shlex.quote(str(activate))} && {line}"
    # As times, not as ages: they are typed at once, or in an hour. What went wrong in the shop did
    # so 21 minutes before it opened (see `shop.live_the_past`).
    first, last = (f"{opened - timedelta(minutes=age):%Y-%m-%dT%H:%MZ}" for age in (22, 20))
    text = _KEPT.format(line=line, program=PROGRAM, wrong_from=first, wrong_until=last)
    for each in text.splitlines():
        logger.info(each)
    try:
        shop.wait()
    except KeyboardInterrupt:
        logger.info("The shop is closed.")
    else:
        raise StreamError("the shop ended unexpectedly; -v shows more")


def _watched(
    opened: datetime, handlers: list[Handler], chosen: list[str], values: Values
) -> Totals | None:
    from watcher.cli.status import WatchStatus
    from watcher.watching import watch  # not before: it needs boto3, which --help does not

    def run(handlers: list[Handler], display: Display | None) -> Totals:
        return watch("orders", handlers, start=opened, max_records=CHANGES, display=display)

    if values["live"]:
        aws = dict.fromkeys(options.AWS)
        return view_live(
            ["orders"], chosen, lambda each, display: run([*handlers, each], display), aws
        )
    with output.status_line() as line:
        return run(handlers, None if line is None else WatchStatus(line))
