"""A word on what keeps its caller waiting, and may do so for good."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

logger = logging.getLogger("watcher")

_FROM_SECONDS = 10.0
_EVERY_SECONDS = 60.0


@contextmanager
def said(text: Callable[[float], str | None]) -> Iterator[None]:
    """Say this once it has taken ten seconds, and every minute; None: nothing, this time.

    `text` is told how many seconds it has been.
    """
    done = threading.Event()

    def run() -> None:
        passed, pause = 0.0, _FROM_SECONDS
        while not done.wait(pause):
            passed += pause
            pause = _EVERY_SECONDS
            if line := text(passed):
                logger.warning(line)

    thread = threading.Thread(target=run, name="said", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
