"""Limits botocore's calls in time, which it does not do while bytes arrive."""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from contextlib import contextmanager
from typing import TypeVar

from watcher.call_pool import CallPool
from watcher.errors import TransientError

logger = logging.getLogger("watcher")

_Answer = TypeVar("_Answer")

CONNECT_SECONDS = 5.0
READ_SECONDS = 10.0
"""The read timeout, for a pause between bytes: it detects a dead peer."""
LOOP_READ_SECONDS = 3.0
"""The read timeout in the loop, which has other streams to serve."""
SLOW_FROM_SECONDS = 10.0
"""The time after which a wait is logged with its cause …"""
SLOW_EVERY_SECONDS = 60.0
"""… and the delay before it is logged again."""

# More than there are connections: those that hang must not keep others.
_calls = CallPool(most=256)


def with_deadline(
    operation: Callable[..., _Answer], *, seconds: float, before: Callable[[], object]
) -> Callable[..., _Answer]:
    """Returns an operation of botocore's client with a time limit for each whole call.

    After it TransientError is raised, and a thread waits for the answer, until botocore's read
    timeout. `before` is called first, outside of that time: the user may be asked for an MFA code
    there.
    """

    @functools.wraps(operation)
    def call(**query: object) -> _Answer:
        before()
        (answer,) = _calls.start([functools.partial(operation, **query)], few=0)
        try:
            if not wait([answer], seconds).done:
                raise TransientError(f"no whole answer within {seconds:g} s", overdue=True)
            return answer.result()
        finally:
            del answer  # else an error's frame would hold it, and its socket

    return call


@contextmanager
def log_if_slow(text: Callable[[float], str | None]) -> Iterator[None]:
    """Logs a warning once the block has taken ten seconds, and then every minute.

    `text` gets the seconds so far; where it returns None, nothing is logged this time.
    """
    done = threading.Event()

    def run() -> None:
        passed, pause = 0.0, SLOW_FROM_SECONDS
        while not done.wait(pause):
            passed += pause
            pause = SLOW_EVERY_SECONDS
            if line := text(passed):
                logger.warning(line)

    logging_aside = _calls.start([run], few=0)
    try:
        yield
    finally:
        done.set()
        wait(logging_aside)
