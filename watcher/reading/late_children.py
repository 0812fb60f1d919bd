"""Children of finished shards that no listing shows yet: for how long they are waited for."""

from __future__ import annotations

import math
from datetime import datetime, timedelta

from watcher.clock import Clock
from watcher.reading.lineage import Lineage, Tracked
from watcher.reading.open_end import SETTLED_SECONDS
from watcher.service.model import opened_at

# After a shard's end its child is a moment away, or a listing that lags hides it.
_PAUSE_SECONDS = 0.25
PAUSE_SECONDS_MAX = 1.0
# One that listings hide for longer is still looked for, every few seconds, for so long.
_LOOKED_FOR_SECONDS = 60.0


def is_young(shard: Tracked, listed: datetime) -> bool:
    """Whether a listing of that time may lack a sibling of this shard."""
    opened = opened_at(shard.id)
    return opened is None or opened + timedelta(seconds=SETTLED_SECONDS) > listed


class LateChildren:
    """The finished shards without a child: there is none where throughput was lowered."""

    def __init__(self, clock: Clock) -> None:
        self.settled_at = -math.inf
        """By this (monotonic) time no child is missing."""
        self._clock = clock
        self._until: dict[str, float] = {}
        self._pause = _PAUSE_SECONDS
        self._looked_for_until = -math.inf

    def finished(self, shard_id: str, *, is_alone: bool, may_have_more: bool) -> None:
        """A shard has finished; `is_alone`: without a child that is known."""
        now = self._clock.monotonic()
        until = now + SETTLED_SECONDS
        if is_alone:
            self._looked_for_until = now + _LOOKED_FOR_SECONDS
            self._until[shard_id] = until
            self._pause = _PAUSE_SECONDS
        if may_have_more:
            self.settled_at = until

    def may_still_come(self) -> bool:
        """Whether a shard has finished without a child in the last minute."""
        return self._clock.monotonic() < self._looked_for_until

    def are_missing(self, lineage: Lineage) -> bool:
        """Whether a shard has finished so lately that its child may not be listed yet."""
        now = self._clock.monotonic()
        self._until = {
            shard_id: until
            for shard_id, until in self._until.items()
            if now < until and not lineage.children(shard_id)
        }
        return bool(self._until)

    def pause(self) -> float:
        """Seconds to wait for the next listing: more each time."""
        pause, self._pause = self._pause, min(self._pause * 2, PAUSE_SECONDS_MAX)
        return pause
