"""Decides which refusals end the reading: at its beginning more than later."""

from __future__ import annotations

import math

from watcher.clock import Clock
from watcher.errors import DeniedError, TransientError, UnexpectedAnswerError
from watcher.streams.messages import ErrorKind, Notice, Retrying
from watcher.streams.timing import TIMING, Timing


class PersistentErrors:
    """Counts requests that are refused in ways that only the user can mend.

    An odd answer (a proxy that restarts, an error that nobody knows) ends nothing once there was
    an answer as it should be; no permission does after a minute of attempts. Without any, both are
    the cause why nothing works.
    """

    def __init__(self, clock: Clock, *, has_worked: bool = False, timing: Timing = TIMING) -> None:
        self._timing = timing
        self._clock = clock
        self.has_worked = has_worked
        """True if there was an answer as it should be."""
        self.last = ""
        """The text of the last error."""
        self._seconds = -math.inf
        self._at = -math.inf  # up to when it was counted
        self._denied: dict[str, tuple[float, float]] = {}  # for how long, and when the last time
        self._credentials = 0
        self._credentials_at = -math.inf

    def on_answer(self) -> None:
        """Takes in an answer as it should be."""
        self.has_worked = True

    def count_seconds(self) -> float:
        """Counts up to now for how long requests were refused; negative without any refusal."""
        now = self._clock.monotonic()
        self._seconds += min(now - self._at, self._timing.between_errors_seconds)
        self._at = now
        return self._seconds

    def on_error(self, name: str, trouble: Retrying) -> None:
        """Takes in a shard's trouble. Raises DeniedError, UnexpectedAnswerError where it ends."""
        self.last = trouble.text
        self._seconds = max(0.0, self.count_seconds())
        if trouble.failures == 1 or trouble.kind is not ErrorKind.DENIED:
            self._denied.pop(name, None)
        if trouble.kind is ErrorKind.DENIED:
            now = self._clock.monotonic()
            seconds, last = self._denied.get(name, (0.0, now))
            seconds += min(now - last, self._timing.between_errors_seconds)
            self._denied[name] = seconds, now
            if not self.has_worked or seconds >= self._timing.denied_seconds:
                raise DeniedError(trouble.text)
        if (
            trouble.kind is ErrorKind.UNEXPECTED
            and not self.has_worked
            and trouble.failures >= self._timing.odd_answers
        ):
            raise UnexpectedAnswerError(trouble.text)

    def subject(self, shard_id: str, message: Retrying | Notice) -> str | None:
        """Returns the subject of a log line; None where one said the same of all shards."""
        if not isinstance(message, Retrying) or message.kind is not ErrorKind.CREDENTIALS:
            return f"Shard {shard_id}"
        now = self._clock.monotonic()
        if (
            message.failures <= self._credentials
            and now < self._credentials_at + self._timing.credentials_news_seconds
        ):
            return None
        self._credentials, self._credentials_at = message.failures, now
        return "All shards"


def kind_of(error: Exception) -> ErrorKind:
    """Returns the kind of an error of the service."""
    if isinstance(error, DeniedError):
        return ErrorKind.DENIED
    if isinstance(error, TransientError) and error.overdue:
        return ErrorKind.OVERDUE
    return ErrorKind.UNEXPECTED if isinstance(error, UnexpectedAnswerError) else ErrorKind.PASSING
