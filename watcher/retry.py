"""Retries after failures: the delays between them, and which failures are logged."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

# Limits the exponent: a network may be down for days.
_DOUBLINGS = 10
# A few failures are normal.
_FIRST_LOGGED = 4

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, kw_only=True)
class Backoff:
    """The delays between attempts: each twice as long as the one before, up to the longest."""

    first_seconds: float = 0.1
    longest_seconds: float = 10.0
    jitter: float = 0.0
    """The largest share that chance subtracts from a delay, so that retries spread."""

    def after(self, failures: int, chance: Callable[[], float] = random.random) -> float:
        """Returns the seconds to wait after this number of failures in a row (at least 1)."""
        doubled = self.first_seconds * 2.0 ** min(failures - 1, _DOUBLINGS)
        pause = min(doubled, self.longest_seconds)
        return pause * (1.0 - self.jitter * chance()) if self.jitter else pause

    def pauses(self, attempts: int) -> Iterator[float]:
        """Yields the delays between this number of attempts."""
        return (self.after(failures) for failures in range(1, attempts))


def retry(
    call: Callable[[], _Answer],
    *,
    pauses: Iterable[float],
    may_pass: Callable[[Exception], bool],
    sleep: Callable[[float], object],
) -> _Answer:
    """Returns the call's result; retries it after each of the pauses while its error may pass.

    Raises an error that may not pass, and the one after the last pause. A pause is taken from the
    iterator only after a failure, as it may reserve a rate limit.
    """
    left = iter(pauses)
    while True:
        try:
            return call()
        except Exception as error:
            if not may_pass(error) or (pause := next(left, None)) is None:
                raise
        sleep(pause)


def worth_logging(failures: int, from_failure: int = _FIRST_LOGGED) -> bool:
    """True for the failure of this number, and then for failures at growing intervals."""
    return failures >= from_failure and failures.bit_count() == 1
