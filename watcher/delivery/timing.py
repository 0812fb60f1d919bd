"""Pauses and limits of the delivery room: each with its unit and the reason for its value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class SequentialTiming:
    """How long delivery keeps the loop, and how many records a handler takes together."""

    turn_seconds: float = 0.2
    """After so long the loop looks around: a slow handler must not hold up saves and listings."""
    first_together: int = 16
    """So many records at first for a handler that takes several together, then more and more."""
    most_together: int = 1024
    """At most so many: about a page."""
    quick_seconds: float = 0.02
    """A handler that took less for the last ones gets twice as many; a slower one a quarter."""


@dataclass(frozen=True, kw_only=True)
class ConcurrentTiming:
    """The limits of memory, and of the time that one shard keeps others waiting."""

    shard_bytes: int = 4 * 1024 * 1024
    """So much may wait of one shard before it is read no further for a while."""
    all_bytes: int = 64 * 1024 * 1024
    """So much of all of them, beside twice `shard_bytes` for each thread."""
    turn_seconds: float = 0.5
    """After so long a shard gives its thread to another one."""
    tick_seconds: float = 0.2
    """How often what has waited long is looked for: as often as the loop waits for messages."""
    look_seconds: float = 0.02
    """How often the loop looks whether handlers have made room, or have ended."""
    slow_seconds: float = 10.0
    """A handler that takes longer for one record is worth a line."""
    last_seconds: float = 0.5
    """Of the time that a stop has, so much is for tasks that were cancelled to end."""
    reserve_seconds: float = 5.0
    """So long nothing is begun so that items can be read; then changes get as long again."""


@dataclass(frozen=True, kw_only=True)
class HandlerTiming:
    """How long handlers, their retries and what they leave may take, and when that is logged."""

    poll_seconds: float = 0.1
    """How often a wait before a retry looks whether the run is to stop."""
    cancelled_seconds: float = 0.5
    """Tasks that are cancelled may take so long for their end."""
    look_for_edit_seconds: float = 0.2
    """How often `--reload` looks whether a handler's file was written."""
    spans_end_seconds: float = 5.0
    """At the end, so much time goes into sending the last spans."""
    log_again_seconds: float = 10.0
    """A known error is logged again after so long, with how often it came."""
    warn_age_seconds: float = 18 * 3600.0
    """A retried record of this age is soon older than its stream's 24 hours: a warning."""
    stale_age_seconds: float = 48 * 3600.0
    """A record that is older comes from no stream, but from an old dead letter."""
    letter_hidden_seconds: int = 900
    """A dead letter that `replay` has received comes again after so long, if `replay` is killed."""
    letter_poll_seconds: int = 1
    """How long SQS may wait for a dead letter."""


HANDLER_TIMING = HandlerTiming()
