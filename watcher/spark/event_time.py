"""Aligns shards by event time, so that a watermark behind one drops nothing of another.

In a backlog shards are read at different speeds, and Spark's watermark follows the fastest. So of
the shards that can be read, nothing stays unread that is more than `maxEventTimeSkew` older than
the newest record that was delivered: a shard that is ahead waits, as with Flink's watermark
alignment. One that can't be read does not hold up the others forever: after as much time without a
record they go on, with a warning.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final

from watcher.clock import Clock
from watcher.spark.buffered_shard import BufferedShard, unread_since
from watcher.spark.micro_batch import Shards
from watcher.spark.read_ahead import IDLE_POLL_PER_SHARD_SECONDS
from watcher.streams.lineage import ShardStatus, TrackedShard

# The least time that other shards wait for one that can't be read and is behind them.
_LEFT_BEHIND_SECONDS: Final = 10.0

logger = logging.getLogger("watcher")


class EventTimeAlignment:
    """Decides up to which event time a micro-batch may go, and which shards stay behind."""

    def __init__(self, skew: float, clock: Clock) -> None:
        self.left_behind: set[str] = set()
        """The shards that can't be read, and for which the others no longer wait."""
        self._skew = skew
        self._clock = clock
        self._patience = max(skew, _LEFT_BEHIND_SECONDS)
        self._unstarted: dict[str, float] = {}
        """The times since which shards are behind that can't be started."""

    def limit(self, shards: Shards, unstarted: Iterable[TrackedShard]) -> tuple[float, bool]:
        """Returns the latest creation time (epoch seconds) of the next micro-batch's records.

        And True if a shard that is behind is being read: the limit will rise soon. `unstarted` are
        shards that are ready.
        """
        unread = {each.id: unread_since(each) for each in unstarted}
        for each in shards.values():
            if self._is_unread(each, len(shards)):
                unread[each.id] = each.read_until
        newest = max((each.read_until for each in shards.values()), default=-math.inf)
        behind = {name: until for name, until in unread.items() if until + self._skew < newest}
        self._note(behind, shards)
        awaited = behind.keys() - self.left_behind
        parked = {name for name, each in shards.items() if each.is_parked}
        until = min((behind[name] for name in awaited), default=math.inf)
        return until + self._skew, bool(awaited - parked)

    def _is_unread(self, shard: BufferedShard, count: int) -> bool:
        """False for a shard that has ended, or that had no further records a moment ago."""
        if shard.tracked.status in (ShardStatus.FINISHED, ShardStatus.LEFT_OPEN):
            return False
        recently = self._patience + count * IDLE_POLL_PER_SHARD_SECONDS
        return not 0 <= self._clock.time() - shard.idle_at < recently

    def _note(self, behind: Mapping[str, float], held: Shards) -> None:
        """Notes the shards that stay behind: not those with buffered records."""
        now = self._clock.monotonic()
        self.left_behind &= behind.keys()
        unstarted = {}
        for name in behind.keys() - self.left_behind:
            if (shard := held.get(name)) is None:
                unstarted[name] = self._unstarted.get(name, now)
                stalled = now - unstarted[name]
            elif shard.pages or shard.for_executors:
                continue
            else:
                stalled = shard.tried_at - shard.progressed_at
            if stalled >= self._patience:
                self._leave(name, behind[name])
        self._unstarted = unstarted

    def _leave(self, name: str, until: float) -> None:
        self.left_behind.add(name)
        known = "" if until == -math.inf else f"{datetime.fromtimestamp(until, UTC):%Y-%m-%dT%XZ}"
        begins = known and f" from {known} on"
        logger.warning(
            f"Shard {name}: no record for {self._patience:.0f} s, so the others continue without "
            f"it; a watermark may drop its changes{begins} (maxEventTimeSkew)"
        )
