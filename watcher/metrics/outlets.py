"""Where a watch's figures go, beside the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from watcher.engine.figures import Display
from watcher.engine.pulse import Pulse
from watcher.metrics.exporter import exporting


@contextmanager
def outlets(
    display: Display | None, metrics_port: str | int | None
) -> Iterator[tuple[list[Display], Pulse]]:
    """Those that are asked for, until the end of the watch, and the pulse that they look at.

    Raises UsageError.
    """
    found = [] if display is None else [display]
    pulse = Pulse.shared()
    with ExitStack() as stack:
        if metrics_port is not None:
            found.append(stack.enter_context(exporting(metrics_port, pulse)))
        yield found, pulse
