"""The delays and limits of the delivery room, each with its unit and its reason."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class SequentialTiming:
    """How long a turn of the delivery is, and how many records a handler takes together."""

    turn_seconds: float = 0.2
    """The time after which delivery returns to the loop: saves and listings must not wait."""
    first_together: int = 16
    """The records that a handler of pages takes together at first."""
    most_together: int = 1024
    """The most of them: about a page."""
    quick_seconds: float = 0.02
    """The time up to which a handler gets twice as many next; a slower one gets a quarter."""


@dataclass(frozen=True, kw_only=True)
class ConcurrentTiming:
    """The limits of memory, and of the time that one shard holds up others."""

    shard_bytes: int = 4 * 1024 * 1024
    """The size of a shard's waiting pages at which its reading pauses."""
    all_bytes: int = 64 * 1024 * 1024
    """The same of all shards, beside twice `shard_bytes` for each thread."""
    turn_seconds: float = 0.5
    """The time after which a shard gives its thread to another one."""
    tick_seconds: float = 0.2
    """The delay between checks of batches that have waited: as long as the loop's."""
    look_seconds: float = 0.02
    """The wait of the loop for handlers that make room, or end."""
    slow_seconds: float = 10.0
    """The time after which a handler's work on one record is logged."""
    last_seconds: float = 0.5
    """The part of `--stop-timeout` in which cancelled tasks end."""
    reserve_seconds: float = 5.0
    """The time for which nothing new starts so that a snapshot's items get their turn; changes
    then get as long."""


@dataclass(frozen=True, kw_only=True)
class HandlerTiming:
    """The limits of handlers and their retries, and what is logged about them."""

    poll_seconds: float = 0.1
    """The delay between checks, before a retry, whether the run stops."""
    cancelled_seconds: float = 0.5
    """The time in which cancelled tasks end."""
    look_for_edit_seconds: float = 0.2
    """The delay between `--reload`'s checks of handlers' files."""
    spans_end_seconds: float = 5.0
    """The time spent, at the end, on sending the last spans."""
    log_again_seconds: float = 10.0
    """The delay before a known error is logged again, with its count."""
    warn_age_seconds: float = 18 * 3600.0
    """The age at which a retried record is worth a warning: its stream keeps it for 24 hours."""
    stale_age_seconds: float = 48 * 3600.0
    """The age from which a record can't come from a stream, only from an old dead letter."""
    letter_hidden_seconds: int = 900
    """The time after which SQS gives a dead letter again, if `replay` is killed."""
    letter_poll_seconds: int = 1
    """SQS's wait for a dead letter."""


HANDLER_TIMING = HandlerTiming()
