"""`metrics`: count changes by kind and window of time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from watcher.cli import spark


def command(words: Sequence[str]) -> Callable[..., int]:
    """The job until stopped, or up to now with `--once`."""
    return spark.command(
        "metrics",
        goes_on=lambda values: bool(values["checkpoint"] or values["to"]),
        several=True,
    )
