"""An end for calls of botocore, whose time-outs begin anew with each byte that comes."""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from watcher.errors import TransientError

logger = logging.getLogger("watcher")

_SAID_SECONDS = 10.0

_Answer = TypeVar("_Answer")

READS = 3
"""A call as a whole may take so many times as long as one that says nothing."""


def within(seconds: float, call: Callable[[], _Answer], name: str = "") -> _Answer:
    """The call's answer. Raises what it does, and TransientError after so many seconds.

    A thread waits for what comes later still: until its connection says nothing for as long as
    botocore waits. After ten seconds it is said that the call `name` has no answer yet.
    """
    answers: list[_Answer] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            answers.append(call())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="call", daemon=True)
    thread.start()
    thread.join(min(seconds, _SAID_SECONDS) if name else seconds)
    if name and thread.is_alive():
        logger.info(f"{name}: no answer yet, for {_SAID_SECONDS:g} s; it is asked on")
        thread.join(seconds - _SAID_SECONDS)
    if errors:
        raise errors.pop()  # one that its own frame holds would keep its socket open
    if not answers:
        raise TransientError(f"no whole answer within {seconds:g} s", overdue=True)
    return answers[0]


class WithDeadline:
    """A client of botocore whose calls end after so many seconds, each as a whole.

    `before` is called first, outside of that time: people may be asked for an MFA code there.
    With `says` somebody may wait who wonders what goes on.
    """

    def __init__(
        self, client: Any, seconds: float, before: Callable[[], object], *, says: bool = False
    ) -> None:
        self._says = says
        self._client = client
        self._seconds = seconds
        self._before = before

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self._client, name)

        @functools.wraps(operation)
        def call(**query: Any) -> Any:
            self._before()
            words = name.title().replace("_", "") if self._says else ""
            return within(self._seconds, functools.partial(operation, **query), words)

        return call


_FROM_SECONDS = 10.0
_EVERY_SECONDS = 60.0


@contextmanager
def log_if_slow(text: Callable[[float], str | None]) -> Iterator[None]:
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
