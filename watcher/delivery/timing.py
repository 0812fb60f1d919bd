"""The delays and limits of the delivery room, each with its unit and its reason."""

from __future__ import annotations

from dataclasses import dataclass

from watcher.retry import Backoff


@dataclass(frozen=True, kw_only=True)
class SequentialTiming:
    """The length of a turn, and how many records a handler gets in one call."""

    turn_seconds: float = 0.2
    """The time after which delivery returns to the loop: saves and listings can't wait longer."""
    first_together: int = 16
    """The number of records that a handler of pages gets in its first call."""
    most_together: int = 1024
    """The largest number of records in one call: about a page."""
    quick_seconds: float = 0.02
    """The call time up to which the next call gets twice as many records; a slower one, a quarter.
    """


@dataclass(frozen=True, kw_only=True)
class ConcurrentTiming:
    """Limits of memory, and of the time that one shard delays others."""

    shard_bytes: int = 4 * 1024 * 1024
    """The size of a shard's waiting pages at which its reading pauses."""
    all_bytes: int = 64 * 1024 * 1024
    """The limit for all shards, in addition to twice `shard_bytes` for each thread."""
    turn_seconds: float = 0.5
    """The time after which a shard gives its thread to another one."""
    tick_seconds: float = 0.2
    """The delay between checks of waiting batches, the same as the loop's."""
    look_seconds: float = 0.02
    """The loop's delay between checks whether a handler has made room, or ended."""
    slow_seconds: float = 10.0
    """The time after which a handler's work on one record is logged."""
    last_seconds: float = 0.5
    """The part of `--stop-timeout` that is kept for the end of cancelled tasks."""
    reserve_seconds: float = 5.0
    """The time for which no change starts, so that a snapshot's items get their turn.

    Changes then get the same time.
    """


@dataclass(frozen=True, kw_only=True)
class HandlerTiming:
    """Limits of handlers and of their retries, and the delays of log messages about them."""

    poll_seconds: float = 0.1
    """The delay between checks, before a retry, whether the watch stops."""
    cancelled_seconds: float = 0.5
    """The time that cancelled tasks get for their end."""
    look_for_edit_seconds: float = 0.2
    """The delay between `--reload`'s checks of handlers' files."""
    retry_backoff: Backoff = Backoff(longest_seconds=60.0, jitter=0.2)
    """The delays before a failed handler is retried: what it calls may be back any minute."""
    batch_backoff: Backoff = Backoff()
    """The delays before a Lambda function's failed batch is retried."""
    log_retry_seconds: tuple[float, ...] = (60.0, 300.0, 900.0)
    """The times from the first failure to each further log message, …"""
    log_retry_every_seconds: float = 3600.0
    """… and, after these, the time between two."""
    log_again_seconds: float = 10.0
    """The delay before a known error is logged again, with its count."""
    warn_age_seconds: float = 18 * 3600.0
    """The age at which a retried record is worth a warning: its stream keeps it for 24 hours."""
    stale_age_seconds: float = 48 * 3600.0
    """The age from which a record must come from an old dead letter, not from a stream."""
    letter_hidden_seconds: int = 900
    """The time after which SQS shows a dead letter again, if `replay` is killed."""
    letter_poll_seconds: int = 1
    """The time that SQS waits for a dead letter."""
    function_seconds: float = 900.0
    """Lambda's time limit, which the context reports; nothing here ends a function."""


HANDLER_TIMING = HandlerTiming()
