"""Spark's Python processes take no modules from the working folder, such as a pyspark.py."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

_NAME = "PYTHONSAFEPATH"
_OURS = "watcher"  # any text does


@contextmanager
def inherited() -> Iterator[None]:
    """The JVM that is started in here hands it on to all that it starts."""
    if _NAME in os.environ:
        yield
        return
    os.environ[_NAME] = _OURS
    try:
        yield
    finally:
        end()


def end() -> None:
    """In one of Spark's processes: what it starts is the user's, such as a credential_process."""
    if os.environ.get(_NAME) == _OURS:
        del os.environ[_NAME]
