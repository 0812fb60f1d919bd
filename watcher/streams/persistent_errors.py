"""Decides which refusals end the reading; before a first success, more of them do."""

from __future__ import annotations

import math
from collections import Counter

from watcher.clock import Clock
from watcher.errors import (
    CredentialsError,
    DeniedError,
    TransientError,
    UnexpectedAnswerError,
)
from watcher.streams.messages import ErrorKind, Notice, ReadFailed
from watcher.streams.timing import TIMING

_BETWEEN_ERRORS_SECONDS = 10.0
"""The longest counted time between two errors: in a longer one the machine slept."""
_ODD_ANSWERS = 3
"""The number of odd answers to a shard's reads, before any good one, that ends the reading."""
_CREDENTIALS_NEWS_SECONDS = 60.0
"""The time after which still refused credentials are logged again."""


class PersistentErrors:
    """Counts refused requests that only the user can fix.

    After a first success, an odd answer (a restarting proxy, an unknown error) ends nothing, and
    missing permissions only after a minute of attempts. Before it, both end the reading as its
    cause.
    """

    def __init__(self, clock: Clock, *, has_worked: bool = False) -> None:
        self._clock = clock
        self.has_worked = has_worked
        """True once a request has succeeded."""
        self.last = ""
        """The text of the last error."""
        self._seconds = -math.inf
        self._at = -math.inf  # the end of the counted time
        self._denied: dict[str, tuple[float, float]] = {}  # seconds, and the time of the last one
        self._odd = Counter[str]()  # before any good answer
        self._credentials = 0
        self._credentials_at = -math.inf

    def on_answer(self) -> None:
        """Notes a success."""
        self.has_worked = True

    def forget_seconds(self) -> None:
        """Counts the seconds from the next error on."""
        self._seconds = -math.inf

    def count_seconds(self) -> float:
        """Returns the seconds of refused requests, counted up to now; negative without one."""
        now = self._clock.monotonic()
        self._seconds += min(now - self._at, _BETWEEN_ERRORS_SECONDS)
        self._at = now
        return self._seconds

    def on_error(self, name: str, error: ReadFailed) -> None:
        """Handles a shard's error.

        Raises DeniedError, UnexpectedAnswerError where it ends the reading.
        """
        self.last = error.text
        self._seconds = max(0.0, self.count_seconds())
        if error.failures == 1 or error.kind is not ErrorKind.DENIED:
            self._denied.pop(name, None)
        if error.kind is ErrorKind.DENIED:
            now = self._clock.monotonic()
            seconds, last = self._denied.get(name, (0.0, now))
            seconds += min(now - last, _BETWEEN_ERRORS_SECONDS)
            self._denied[name] = seconds, now
            if not self.has_worked or seconds >= TIMING.denied_seconds:
                raise DeniedError(error.text)
        if error.kind is ErrorKind.UNEXPECTED and not self.has_worked:
            self._odd[name] += 1
            if self._odd[name] >= _ODD_ANSWERS:
                raise UnexpectedAnswerError(error.text)

    def subject(self, shard_id: str, message: ReadFailed | Notice) -> str | None:
        """Returns the subject of a log line; None where one line was logged for all shards."""
        if not isinstance(message, ReadFailed) or message.kind is not ErrorKind.CREDENTIALS:
            return f"Shard {shard_id}"
        now = self._clock.monotonic()
        if (
            message.failures <= self._credentials
            and now < self._credentials_at + _CREDENTIALS_NEWS_SECONDS
        ):
            return None
        self._credentials, self._credentials_at = message.failures, now
        return "All shards"


def kind_of(error: Exception) -> ErrorKind:
    """Returns the kind of a service's error."""
    if isinstance(error, DeniedError):
        return ErrorKind.DENIED
    if isinstance(error, CredentialsError):
        return ErrorKind.CREDENTIALS
    if isinstance(error, TransientError) and error.overdue:
        return ErrorKind.OVERDUE
    return ErrorKind.UNEXPECTED if isinstance(error, UnexpectedAnswerError) else ErrorKind.PASSING
