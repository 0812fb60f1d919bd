"""An end for calls of botocore, whose time-outs begin anew with each byte that comes."""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from watcher.aws import timing as timings
from watcher.aws.timing import CallTiming
from watcher.errors import TransientError

logger = logging.getLogger("watcher")

_Answer = TypeVar("_Answer")


def within(
    seconds: float,
    call: Callable[[], _Answer],
    name: str = "",
    *,
    timing: CallTiming | None = None,
) -> _Answer:
    """Returns the call's answer. Raises what it does, and TransientError after so many seconds.

    A thread waits for what comes later still: until its connection says nothing for as long as
    botocore waits. After ten seconds the log says that the call `name` has no answer yet.
    """
    log_seconds = (timing or timings.CALLS).unanswered_seconds
    answers: list[_Answer] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            answers.append(call())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="call", daemon=True)
    thread.start()
    thread.join(min(seconds, log_seconds) if name else seconds)
    if name and thread.is_alive():
        logger.info(f"{name}: no answer yet, for {log_seconds:g} s; it is asked on")
        thread.join(seconds - log_seconds)
    if errors:
        raise errors.pop()  # one that its own frame holds would keep its socket open
    if not answers:
        raise TransientError(f"no whole answer within {seconds:g} s", overdue=True)
    return answers[0]


def with_deadline(
    operation: Callable[..., _Answer],
    *,
    seconds: float,
    before: Callable[[], object],
    logs: bool = False,
    timing: CallTiming | None = None,
) -> Callable[..., _Answer]:
    """Returns an operation of botocore's client with an end for each call, as a whole.

    `before` is called first, outside of that time: people may be asked for an MFA code there. With
    `logs` somebody may wait who wonders what goes on.
    """
    name = operation.__name__.title().replace("_", "") if logs else ""

    @functools.wraps(operation)
    def call(**query: Any) -> _Answer:
        before()
        return within(seconds, functools.partial(operation, **query), name, timing=timing)

    return call


@contextmanager
def log_if_slow(
    text: Callable[[float], str | None], *, timing: CallTiming | None = None
) -> Iterator[None]:
    """Logs this warning once it has taken ten seconds, and every minute.

    `text` is told how many seconds it has been; where it returns None, nothing is logged this time.
    """
    timing = timing or timings.CALLS
    done = threading.Event()

    def run() -> None:
        passed, pause = 0.0, timing.slow_from_seconds
        while not done.wait(pause):
            passed += pause
            pause = timing.slow_every_seconds
            if line := text(passed):
                logger.warning(line)

    thread = threading.Thread(target=run, name="log if slow", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
