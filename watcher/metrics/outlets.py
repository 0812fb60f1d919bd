"""Where a watch's figures go, beside the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from watcher import telemetry
from watcher.engine.figures import Display
from watcher.engine.pulse import Pulse
from watcher.metrics.exporter import exporting


@contextmanager
def outlets(
    display: Display | None, metrics_port: str | int | None, stop_timeout: float
) -> Iterator[tuple[list[Display], Pulse]]:
    """Those that are asked for, until the end of the watch, and the pulse that they look at.

    Raises UsageError.
    """
    found = [] if display is None else [display]
    pulse = Pulse.shared()
    with ExitStack() as stack:
        senders = telemetry.exporters("metrics")
        if metrics_port is not None or senders:
            place = exporting(metrics_port, pulse, senders, stop_timeout)
            found.append(stack.enter_context(place))
        yield found, pulse
