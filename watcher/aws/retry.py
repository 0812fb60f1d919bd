"""Retries calls until they succeed, as long as the error may pass."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TypeVar

from botocore import exceptions as boto
from botocore.parsers import ResponseParserError

from watcher.aws import error_hints
from watcher.aws.config import Query
from watcher.aws.credentials import Credentials
from watcher.aws.deadline import log_if_slow
from watcher.aws.error_mapping import (
    error_code,
    one_line,
    to_watcher_error,
)
from watcher.aws.model import Listing, Service
from watcher.clock import CLOCK, Clock
from watcher.errors import (
    CredentialsError,
    DeniedError,
    StreamError,
    TransientError,
    UnexpectedAnswerError,
    WatcherError,
)
from watcher.retry import Backoff, retry, worth_logging

logger = logging.getLogger("watcher")

_Answer = TypeVar("_Answer")

PATIENCE_SECONDS = 300.0
"""The time for which passing errors are retried."""
# The time for which a denial is retried: policy changes take a while to spread.
_DENIED_SECONDS = 60.0
_RETRY_BACKOFF = Backoff(first_seconds=0.2, longest_seconds=1.6, jitter=0.5)
_START_BACKOFF = Backoff(first_seconds=0.2, longest_seconds=1.6)
# The attempts at a program's first call.
_START_ATTEMPTS = 5
# Another transaction holds the item for a moment.
_IN_USE = "TransactionConflictException"
_REFUSED = (
    boto.ClientError,
    boto.BotoCoreError,
    ResponseParserError,
    TransientError,
    CredentialsError,
    UnexpectedAnswerError,
)


class RetryingClient:
    """Makes the calls of one client, each retried for a limited time.

    Throttling may outlast botocore's retries, but passes. Refused credentials, odd answers, and a
    denial within a minute pass too, as for a reader of shards, but only after a success: for a
    denial, of that operation on that table, as a role allows each separately; for the others, of
    any call, or of the program (`has_begun`).
    """

    def __init__(
        self,
        credentials: Credentials,
        *,
        has_begun: bool = False,
        patience_seconds: float = PATIENCE_SECONDS,
        clock: Clock = CLOCK,
    ) -> None:
        self._credentials = credentials
        self._has_begun = has_begun
        self._patience_seconds = patience_seconds
        self._clock = clock
        self._worked: set[str] = set()

    def __call__(self, operation: Callable[..., _Answer], /, **query: object) -> _Answer:
        """Returns the operation's answer. Raises StreamError, TransientError."""
        started = self._clock.monotonic()
        failures = 0
        action = operation.__name__.title().replace("_", "")
        needed = _needed(action, query)
        while True:
            try:
                is_patient = self._patience_seconds > 0  # a lease's calls end within 2 s
                with log_if_slow(partial(_unanswered, needed)) if is_patient else nullcontext():
                    answer = operation(**query)
            except _REFUSED as error:
                failures += 1
                meaning = self._meaning(error, needed)
                limit = self._patience_seconds
                if isinstance(meaning, DeniedError):
                    limit = min(limit, _DENIED_SECONDS)
                if self._clock.monotonic() >= started + limit:
                    raise meaning from error
                if worth_logging(failures):
                    logger.warning(f"{action}: {failures} failures in a row: {meaning}")
                self._clock.sleep(_RETRY_BACKOFF.after(failures))
            else:
                self._worked.add(needed)
                return answer

    def _meaning(self, error: Exception, needed: str) -> WatcherError:
        """Returns watcher's error for one that may pass; raises it for others."""
        meaning = error if isinstance(error, WatcherError) else to_watcher_error(error)
        if isinstance(meaning, TransientError) or error_code(error) == _IN_USE:
            return TransientError(one_line(error))
        if isinstance(meaning, DeniedError):
            if isinstance(error, boto.ClientError):
                meaning = DeniedError(error_hints.denied_hint(error, one_line(error), needed))
            passes = needed in self._worked
        elif isinstance(meaning, CredentialsError) or isinstance(error, UnexpectedAnswerError):
            has_some = not isinstance(error, boto.NoCredentialsError)
            passes = (self._has_begun and has_some) or bool(self._worked)
        else:
            meaning = StreamError(one_line(error))
            # botocore's code for an answer without an error code is its status.
            passes = error_code(error).isdigit() and (self._has_begun or bool(self._worked))
        if not passes:
            raise meaning from error
        if isinstance(meaning, CredentialsError):
            self._credentials.renew()
        return meaning


def _unanswered(needed: str, seconds: float) -> str:
    return f"{needed}: no answer for {seconds:g} s; still trying"


def _needed(action: str, query: Query) -> str:
    """Returns the permission that a call needs."""
    table = query.get("TableName") or next(iter(query.get("RequestItems", ())), "it")
    return f"dynamodb:{action} on {table}"


def first_listing(service: Service, arn: str) -> Listing:
    """Returns a stream's listing, each page of which is retried. Raises StreamError."""
    with _unreached():
        return service.list_shards(arn)


def retry_at_start(call: Callable[[], _Answer], clock: Clock = CLOCK) -> _Answer:
    """Retries a call that fails for a moment. Raises StreamError in the end."""
    with _unreached():
        return retry(
            call,
            pauses=_START_BACKOFF.pauses(_START_ATTEMPTS),
            may_pass=lambda error: isinstance(error, TransientError) and not error.overdue,
            sleep=clock.sleep,
        )


@contextmanager
def _unreached() -> Iterator[None]:
    """Raises an error that may pass, and has lasted, as StreamError."""
    try:
        yield
    except TransientError as error:
        hint = error_hints.unreachable_hint(str(error))
        text = f"can't reach the stream: {error}{hint}"
        raise StreamError(text, about=("endpoint_url", "region")) from error
