"""`mirror`: the table as a Delta table."""

from __future__ import annotations

import importlib
import importlib.util
import logging
from collections.abc import Callable, Sequence
from typing import Any

from watcher.cli import options
from watcher.errors import UsageError
from watcher.formatting.text import counted
from watcher.version import install
from watcher.watching import watch

logger = logging.getLogger("watcher")


def command(words: Sequence[str]) -> Callable[..., int]:
    """Until stopped, or up to now with `--once`."""
    for needed in ("deltalake", "pyarrow"):
        if importlib.util.find_spec(needed) is None:
            raise UsageError(f"a mirror is written by delta-rs: {install('mirror')}")
    mirror = importlib.import_module("watcher.mirror.command").mirror

    def run(stream: options.Stream, /, **values: Any) -> int:
        given = options.values(mirror, values)
        done = mirror(stream, **given, connection=options.connection(values))
        text = f"{counted(done.items, 'item')} copied, {counted(done.changes, 'change')} applied"
        if values["once"] and done.signal:
            logger.warning(f"Stopped early: {text}; the same command goes on")
            return 128 + int(done.signal)
        logger.info(f"Done: {text}")
        return 0

    return options.spelled(run, options.of(mirror), options.of(watch, *options.AWS))
