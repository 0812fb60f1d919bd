"""What the service keeps refusing to those who read shards, and how much of that is said."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping

from watcher.backoff import worth_saying
from watcher.clock import Clock
from watcher.reading.messages import Kind, Trouble

logger = logging.getLogger("watcher")

# What is said so long afterwards is of other refused credentials.
_ANEW_SECONDS = 60.0


class Troubles:
    """Says what was refused several times in a row, at ever longer distances.

    Credentials are the same for all shards: that they are refused is not said for each.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._refusals = 0
        self._refused_at = -math.inf

    def hear(self, shard_id: str, message: Trouble, about: Mapping[str, str]) -> None:
        """A shard's reader is refused again."""
        if not worth_saying(message.failures):
            return
        name = f"Shard {shard_id}"
        if message.kind is Kind.CREDENTIALS:
            now = self._clock.monotonic()
            if message.failures <= self._refusals and now < self._refused_at + _ANEW_SECONDS:
                return
            self._refusals, self._refused_at = message.failures, now
            name = "All shards"
        text = f"{name}: {message.failures} failures in a row: {message.text}"
        logger.warning(text, extra=about)
