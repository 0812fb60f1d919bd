"""`archive`: append every change to files."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from watcher.cli import spark


def command(words: Sequence[str]) -> Callable[..., int]:
    """The job until stopped, or up to now with `--once`."""
    return spark.command("archive", goes_on=lambda values: True)
