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
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from watcher import safe_path
from watcher.cli import handler_flags, options, output
from watcher.cli.command_line import PROGRAM
from watcher.cli.options import Values
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
_DEFAULT_HANDLER = "print_summary"
_REGION = "us-east-1"
_KEPT = """
The shop stays open until Ctrl-C; it has the tables orders and customers. In another terminal:

  {line}

and there, for instance:

  {program} orders customers --print-diff
  {program} history orders --key PK=user-1 --key SK=order-1
  {program} undo orders --from {wrong_from} --until {wrong_until}

"""

# What went wrong in it did so 21 minutes before it opened (see `shop.live_the_past`).
_WRONG = {"wrong_from": timedelta(minutes=22), "wrong_until": timedelta(minutes=20)}

_SECONDS = options.Option("seconds", float, 18.0, Opt("how long its changes take", "SECONDS"))
_KEEP = options.Option(
    "keep",
    bool,
    False,
    Opt("keep the shop open until Ctrl-C, for commands in another terminal", negative=""),
)


def demo_command(line: CommandLine) -> options.Command:
    """Shows a shop's changes for some 20 seconds, or until Ctrl-C."""
    handlers = handler_flags.find_handlers(line)
    parts = [
        _SECONDS,
        _KEEP,
        LIVE,
        *options.declared_by(style.set_up),
    ]

    def run(*, origins: options.Origins, **values: object) -> int:
        return _demo(handler_flags.Choice(handlers, origins, values), values)

    return options.with_options(run, handler_flags.flags(handlers.values(), parts), parts)


def _demo(choice: handler_flags.Choice, values: Values) -> int:
    options.call(style.set_up, values)
    if not 0 <= values["seconds"] < math.inf:
        raise UsageError("give 0 or more seconds", "seconds", f"{values['seconds']:g}")
    handlers = choice.load(None if values["live"] else _DEFAULT_HANDLER)
    if importlib.util.find_spec("moto") is None:
        raise UsageError(f"the demo needs the embedded DynamoDB: {install('demo')}")
    account, reach = _isolate_from_aws()
    # The shop stands in a session of its own: Ctrl-C is for the watch.
    settings = str(CHANGES), str(values["seconds"])
    command = [*safe_path.interpreter(), "-m", "watcher.cli.shop", *settings]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as shop:
        try:
            assert shop.stdout is not None
            opening = shop.stdout.readline()
            if not opening:
                raise StreamError("the embedded DynamoDB did not start; -v shows more")
            shop_address = json.loads(opening)
            reach["AWS_ENDPOINT_URL"] = shop_address["endpoint"]
            shown = ["--live"] if values["live"] else choice.chosen or ["--print-summary"]
            flags = " ".join([*shown, *(choice.chosen if values["live"] else ())])
            logger.info(f"$ {PROGRAM} orders {flags}")
            totals = _watched(shop_address, handlers, choice.chosen, values)
            if totals is not None:
                logger.info(closing_line(totals))
            if values["keep"]:
                _keep(shop, datetime.fromisoformat(shop_address["opened"]), reach, account)
        finally:
            shop.terminate()
    return 0


def _isolate_from_aws() -> tuple[dict[str, str], dict[str, str]]:
    """Keeps the demo from any real account; returns the variables before, and the demo's own."""
    account = {name: os.environ.pop(name) for name in [*os.environ] if name.startswith("AWS_")}
    reach = {
        "AWS_DEFAULT_REGION": _REGION,
        "AWS_ACCESS_KEY_ID": "demo",
        "AWS_SECRET_ACCESS_KEY": "demo",
    }
    os.environ.update(reach, AWS_EC2_METADATA_DISABLED="true")
    return account, reach


def _keep(
    shop: subprocess.Popen[bytes],
    opened: datetime,
    reach: dict[str, str],
    account: Iterable[str],
) -> None:
    """Prints how to reach the shop from another terminal, and waits for Ctrl-C."""
    assert shop.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # it has ended by itself, which is said below
        os.write(shop.stdin.fileno(), b"seen\n")
    steps = []
    activate = Path(sys.prefix) / "bin" / "activate"
    if sys.prefix != sys.base_prefix and activate.exists():
        steps.append(f"source {shlex.quote(str(activate))}")
    # What that terminal has set, too, if it is like this one.
    if others := sorted({*account} - {*reach}):
        steps.append(f"unset {' '.join(others)}")
    steps.append(f"export {' '.join(f'{name}={value}' for name, value in reach.items())}")
    # As times, not as ages: they are typed at once, or in an hour.
    wrong = {name: f"{opened - age:%Y-%m-%dT%H:%MZ}" for name, age in _WRONG.items()}
    for line in _KEPT.format(line=" && ".join(steps), program=PROGRAM, **wrong).splitlines():
        logger.info(line)
    try:
        shop.wait()
    except KeyboardInterrupt:
        logger.info("The shop is closed.")
    else:
        raise StreamError("the shop ended unexpectedly; -v shows more")


def _watched(
    shop_address: dict[str, str],
    handlers: Sequence[Handler],
    chosen: Sequence[str],
    values: Values,
) -> Totals | None:
    from watcher.watching import watch  # not before: it needs boto3, which --help does not

    def run(handlers: Sequence[Handler], display: Display | None) -> Totals:
        return watch(
            "orders",
            handlers,
            start=datetime.fromisoformat(shop_address["opened"]),
            max_records=CHANGES,
            region=_REGION,
            endpoint_url=shop_address["endpoint"],
            display=display,
        )

    if values["live"]:
        aws = {"region": _REGION, "profile": None, "endpoint_url": shop_address["endpoint"]}
        return view_live(
            ["orders"], chosen, lambda each, display: run([*handlers, each], display), aws
        )
    from watcher.cli.status import WatchStatus

    with output.status_line() as line:
        return run(handlers, None if line is None else WatchStatus(line))
