"""Starts processes that take no modules from the working folder, such as a json.py."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_NAME = "PYTHONSAFEPATH"
_OURS = "watcher"  # any text does


@contextmanager
def inherited() -> Iterator[None]:
    """The process that is started in here hands it on to all that it starts."""
    if _NAME in os.environ:
        yield
        return
    os.environ[_NAME] = _OURS
    try:
        yield
    finally:
        end()


def end() -> None:
    """In one of these processes: what it starts is the user's, such as a credential_process."""
    if os.environ.get(_NAME) == _OURS:
        del os.environ[_NAME]


def is_kept() -> bool:
    """True where this program itself does not look into the working folder first."""
    return sys.path[:1] not in ([""], [os.path.realpath(".")], [os.path.abspath(".")])


def interpreter() -> list[str]:
    """Python's command for another program, which looks there if this one does."""
    return [sys.executable, *(["-P"] if is_kept() else [])]
