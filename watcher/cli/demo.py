"""`demo`: a small shop writes to an embedded DynamoDB, and the watch shows its changes."""

from __future__ import annotations

import importlib.util
import json
import logging
import math
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from cyclopts import Parameter

from watcher.cli import choosing, live, options, terminal
from watcher.cli.watch import closing_line
from watcher.errors import StreamError, UsageError
from watcher.printing import style
from watcher.version import install
from watcher.watching import watch

if TYPE_CHECKING:
    from watcher.delivery.observer import Observer
    from watcher.engine.figures import Display, Totals

logger = logging.getLogger("watcher")

CHANGES = 60
_DEFAULT_HANDLER = "print_summary"


_SECONDS = options.option(
    "seconds", float, 18.0, Parameter(metavar="SECONDS", help="how long the shop is open")
)


def command(words: Sequence[str]) -> Callable[..., int]:
    """The shop's changes for some 20 seconds, or until Ctrl-C."""
    handlers = choosing.found("demo", words)
    parts = [
        _SECONDS,
        live.ON_A_TERMINAL,
        *options.of(style.set_up),
        *options.of(terminal.status_line),
    ]

    def run(*, given: options.Asked, **values: Any) -> int:
        return _demo(choosing.Choice(handlers, given, values), values)

    return options.spelled(run, choosing.flags(handlers.values(), parts), parts)


def _demo(choice: choosing.Choice, values: dict[str, Any]) -> int:
    style.set_up(**options.values(style.set_up, values))
    if not 0 <= values["seconds"] < math.inf:
        raise UsageError("give 0 or more seconds", "seconds", f"{values['seconds']:g}")
    observers = choice.load(None if values["live"] else _DEFAULT_HANDLER)
    if importlib.util.find_spec("moto") is None:
        raise UsageError(f"the demo needs the embedded DynamoDB: {install('demo')}")
    # Nothing here may reach a real account, whatever this shell is logged in to.
    credentials = {"AWS_ACCESS_KEY_ID": "demo", "AWS_SECRET_ACCESS_KEY": "demo"}
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        del os.environ[name]
    os.environ.update(credentials, AWS_EC2_METADATA_DISABLED="true")
    # The shop stands in a session of its own: Ctrl-C is for the watch.
    command = [sys.executable, "-m", "watcher.cli.shop", str(CHANGES), str(values["seconds"])]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as shop:
        try:
            assert shop.stdout is not None
            opening = shop.stdout.readline()
            if not opening:
                raise StreamError("the embedded DynamoDB did not start; -v shows more")
            place = json.loads(opening)
            shown = ["--live"] if values["live"] else choice.chosen or ["--print-summary"]
            flags = " ".join([*shown, *(choice.chosen if values["live"] else ())])
            logger.info(f"$ python -m watcher {place['stream']} {flags}")
            totals = _watched(place, observers, choice.chosen, values)
        finally:
            shop.terminate()
    if totals is not None:
        logger.info(closing_line(totals))
    return 0


def _watched(
    place: dict[str, str],
    observers: Sequence[Observer],
    chosen: Sequence[str],
    values: dict[str, Any],
) -> Totals | None:
    def run(observers: Sequence[Observer], display: Display | None) -> Totals:
        return watch(
            place["stream"],
            observers,
            start="trim_horizon",
            max_records=CHANGES,
            region="us-east-1",
            endpoint_url=place["endpoint"],
            display=display,
        )

    if values["live"]:
        aws = {"region": "us-east-1", "profile": None, "endpoint_url": place["endpoint"]}
        return live.view(
            [place["stream"]], chosen, lambda each, display: run([*observers, each], display), aws
        )
    from watcher.cli.status import WatchStatus

    with terminal.status_line(**options.values(terminal.status_line, values)) as line:
        return run(observers, None if line is None else WatchStatus(line))
