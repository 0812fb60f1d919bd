"""Trying again after a failure: how long to wait, and which failures are worth a log line."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import msgspec

# Doubling stops here, before it overflows: a network may be gone for days.
_DOUBLINGS = 10
# A few failures are the service's everyday life.
_FIRST_LOGGED = 4

_Answer = TypeVar("_Answer")


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    """The pauses between attempts: each twice as long as the one before, up to the longest."""

    first_seconds: float = 0.1
    longest_seconds: float = 10.0
    jitter: float = 0.0
    """The part of each pause that chance may take off, so that not all come back together."""

    def after(self, failures: int, chance: Callable[[], float] = random.random) -> float:
        """Returns the seconds to wait after so many failures in a row, of which there is one."""
        doubled = self.first_seconds * 2.0 ** min(failures - 1, _DOUBLINGS)
        pause = min(doubled, self.longest_seconds)
        return pause * (1.0 - self.jitter * chance()) if self.jitter else pause

    def pauses(self, attempts: int) -> Iterator[float]:
        """Yields the pauses between so many attempts, one less than there are of those."""
        return (self.after(failures) for failures in range(1, attempts))


def retry(
    call: Callable[[], _Answer],
    *,
    pauses: Iterable[float],
    may_pass: Callable[[Exception], bool],
    sleep: Callable[[float], object],
) -> _Answer:
    """Returns the call's answer, tried again after each of the pauses while its error may pass.

    Raises the error that may not pass, and the one after which no pause is left. A pause is taken
    only behind a failure: it may be a turn, which somebody else waits for.
    """
    left = iter(pauses)
    while True:
        try:
            return call()
        except Exception as error:
            if not may_pass(error) or (pause := next(left, None)) is None:
                raise
        sleep(pause)


def backoff(failures: int, first: float = 0.1, most: float = 10.0) -> float:
    """Returns the seconds to wait after so many failures in a row; see `Backoff`."""
    return Backoff(first_seconds=first, longest_seconds=most).after(failures)


def worth_logging(failures: int, from_failure: int = _FIRST_LOGGED) -> bool:
    """True for failures at ever longer distances, from the one of this number on."""
    return failures >= from_failure and failures.bit_count() == 1
