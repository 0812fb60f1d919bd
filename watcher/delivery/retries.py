"""Decides when a failed handler is retried, and logs about it."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Sequence

import msgspec

from watcher.aws.model import ShardKey
from watcher.clock import CLOCK, Clock
from watcher.delivery.failures import FailureLog, FailurePolicy, failure_text, is_lasting, which_of
from watcher.delivery.handler import Failure
from watcher.records.record import Record
from watcher.retry import Backoff
from watcher.times import duration_text

logger = logging.getLogger("watcher")

_BACKOFF = Backoff(longest_seconds=60.0, jitter=0.2)
"""What a handler calls may be back any minute."""
_LOG_AFTER_SECONDS = 60.0
"""The time from the first failure to the second log message; the third comes after 4 times that."""
_LOG_MOST_SECONDS = 3600.0
"""The longest time between two log messages."""
_WARN_AGE_SECONDS = 18 * 3600.0
"""The age at which a retried record is worth a warning: its stream keeps it for 24 hours."""
_STALE_AGE_SECONDS = 48 * 3600.0
"""The age from which a record must come from an old dead letter, not from a stream."""


class Retry(msgspec.Struct):
    """Records of one shard that a handler failed on, and is retried with."""

    handler: str
    records: Sequence[Record]
    since: float
    """The time (monotonic) of the first failure."""
    alive_at: float
    """The time of the last call, or of the wait for it."""
    tries: int = 0
    """The number of retries."""
    log_after: float = _LOG_AFTER_SECONDS
    """The time from the first failure to the next log message."""
    is_age_logged: bool = False

    def is_of(self, handler: str, records: Sequence[Record]) -> bool:
        """True for the same handler and the same records."""
        own = self.handler, self.records[0].sequence_number, len(self.records)
        return own == (handler, records[0].sequence_number, len(records))


class Retries:
    """Decides when a failed handler is retried: as often as the policy says.

    Several threads may use it, each for other shards.
    """

    def __init__(self, on_error: FailurePolicy, log: FailureLog, clock: Clock = CLOCK) -> None:
        self._on_error = on_error
        self._failure_log = log
        self._clock = clock
        self.counts: Counter[str] = Counter()
        """The number of retries of each handler."""
        self._counting = threading.Lock()
        self.under_way: dict[ShardKey, Retry] = {}
        """The current retry of each shard."""

    def next_in(self, handler: str, failure: Failure) -> float | None:
        """Returns the seconds until the next retry; None: the records are given up."""
        retry, policy = self._retry(handler, failure.records), self._on_error
        retry.tries += 1
        left = retry.since + policy.seconds - self._clock.monotonic()
        is_hopeless = policy.is_endless and is_lasting(failure.error)
        if is_hopeless or retry.tries > policy.retries or left <= 0:
            del self.under_way[failure.records[0].shard_key]
            return None
        with self._counting:
            self.counts[handler] += 1
        self._log(retry, failure.error)
        return min(_BACKOFF.after(retry.tries), left)

    def _retry(self, handler: str, records: Sequence[Record]) -> Retry:
        shard_key, now = records[0].shard_key, self._clock.monotonic()
        current = self.under_way.get(shard_key)
        if current is None or not current.is_of(handler, records):
            current = self.under_way[shard_key] = Retry(handler, records, now, now)
        return current

    def _log(self, retry: Retry, error: BaseException) -> None:
        """Logs the first retry, again after some minutes, and once the records get old."""
        lasted = self._clock.monotonic() - retry.since
        if retry.tries == 1:
            how = " until it succeeds" if self._on_error.is_endless else ""
            self._failure_log.error(retry.handler, retry.records, error, f"; trying again{how}")
        elif lasted >= retry.log_after:
            retry.log_after = min(4 * lasted, lasted + _LOG_MOST_SECONDS)
            text = failure_text(retry.handler, retry.records, error)
            logger.error(
                f"{text}; still, after {duration_text(lasted)} and {retry.tries} tries: "
                "its shard waits",
                extra=_about(retry),
            )
        created = retry.records[0].created_at
        if created is not None and not retry.is_age_logged:
            age = self._clock.time() - created.timestamp()
            if _WARN_AGE_SECONDS <= age < _STALE_AGE_SECONDS:
                retry.is_age_logged = True
                logger.warning(
                    f"{which_of(retry.records)} is {duration_text(age)} old, and handler "
                    f"{retry.handler} still fails on it: after 24 h the stream loses what waits "
                    "behind it. Mend the handler, or start again with "
                    "--on-error retry:1h,dead-letter:…",
                    extra=_about(retry),
                )

    def succeeded(self, shard_key: ShardKey) -> None:
        """Ends the retry of a shard, if there is one, and logs its success."""
        retry = self.under_way.pop(shard_key, None)
        if retry is not None:
            lasted = self._clock.monotonic() - retry.since
            logger.info(
                f"handler {retry.handler} has processed {which_of(retry.records)} after "
                f"{duration_text(lasted)} and {retry.tries} tries",
                extra=_about(retry),
            )

    def lasting(self) -> dict[str, float]:
        """Returns, for each handler in a retry, the seconds since its first failure."""
        now = self._clock.monotonic()
        current: dict[str, float] = {}
        for retry in list(self.under_way.values()):
            current[retry.handler] = max(now - retry.since, current.get(retry.handler, 0.0))
        return current


def _about(retry: Retry) -> dict[str, str]:
    first = retry.records[0]
    return {"stream": first.stream, "shard": first.shard_id, "handler": retry.handler}
