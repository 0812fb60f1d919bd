"""`trust`: let this folder's watcher.toml run code, write files and choose endpoints."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from watcher.cli import defaults, options, trusted
from watcher.errors import UsageError

logger = logging.getLogger("watcher")

_Forget = Annotated[bool, Parameter(negative=(), help="take it back")]


def command(words: Sequence[str]) -> Callable[..., int]:
    """Remember the file by its place and content: once it has changed, it is asked for again."""
    return options.spelled(_trust)


def _trust(*, forget: _Forget = False) -> int:
    file = Path(defaults.PROJECT_FILE)
    if forget:
        text = "is trusted no more" if trusted.forget(file) else "was not trusted"
        logger.info(f"{file.resolve()} {text}")
        return 0
    if not file.is_file():
        raise UsageError(f"no {file} in this folder")
    content = defaults.read(file)
    table = defaults.table(file, content)
    trusted.trust(file, content)
    logger.info(f"Trusted until it changes: {file.resolve()} ({', '.join(_named(table))})")
    return 0


def _named(table: defaults.Table) -> list[str]:
    """What a file sets."""
    parts = []
    for key, value in table.items():
        parts += [f"[{key}] {each}" for each in value] if isinstance(value, dict) else [key]
    return parts or ["nothing"]
