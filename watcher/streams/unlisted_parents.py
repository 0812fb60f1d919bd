"""Parents that only their child's listing names: gone since long, or not listed yet."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping

import msgspec

from watcher.clock import Clock
from watcher.errors import ShardNotFoundError, TrimmedDataError, WatcherError
from watcher.retry import backoff
from watcher.streams.lineage import ShardStatus, TrackedShard
from watcher.streams.timing import TIMING, Timing

logger = logging.getLogger("watcher")

# So many of them are named in one line.
_NAMED = 3


class _UnlistedParent(msgspec.Struct):
    """A parent whose turn has come, but that no listing shows; times are monotonic seconds."""

    shard: TrackedShard
    due: float
    asked: float | None = None
    """When it was asked about first."""
    reason: str = "it does not answer"
    """Why it can't be read yet."""
    there: float | None = None
    """Since when it is known to be there."""
    troubles: int = 0
    """How often in a row there was no telling."""
    warned: bool = False


class UnlistedParents:
    """Whether such a parent can be read.

    Its own parent is unknown: if the listing only lags, there may be one that has to be read
    before it. Most are gone, which the service tells when it is asked for an iterator.
    """

    def __init__(self, arn: str, clock: Clock, *, timing: Timing = TIMING) -> None:
        self._timing = timing
        self._arn = arn
        self.listed_at = -math.inf
        """When the last listing came that shows none of them."""
        self._clock = clock
        self._waiting: dict[str, _UnlistedParent] = {}

    def readable(self, ready: list[TrackedShard]) -> list[TrackedShard]:
        """Those of the ready shards that may be read now; the others wait here."""
        now = self._clock.monotonic()
        waiting, self._waiting = self._waiting, {}
        free = []
        for shard in ready:
            parent = waiting.get(shard.id) or _UnlistedParent(shard, now)
            if shard.expected or self._is_overdue(parent):
                free.append(shard)
            else:
                self._waiting[shard.id] = parent
        return free

    def _is_overdue(self, parent: _UnlistedParent) -> bool:
        # Not by the clock: while no listing comes, none can show it.
        return (
            parent.there is not None
            and self.listed_at - parent.there >= self._timing.unlisted_parent_seconds
        )

    def has_overdue(self) -> bool:
        """Whether one has waited for so long that it is read without being listed."""
        return any(map(self._is_overdue, self._waiting.values()))

    def due(self) -> tuple[str, ...]:
        """Returns the shards whose existence is to be probed now."""
        now = self._clock.monotonic()
        return tuple(each.shard.id for each in self._waiting.values() if each.due <= now)

    def probing(self, shard_ids: Iterable[str]) -> None:
        """Notes that these are being probed; warns of those without an answer for long."""
        now = self._clock.monotonic()
        for name in shard_ids:
            if (parent := self._waiting.get(name)) is not None and parent.asked is None:
                parent.asked = now
        self._warn()

    def probed(self, answers: Mapping[str, WatcherError | None]) -> bool:
        """Finishes the shards that are gone; returns whether there were any.

        Those without an answer are probed again.
        """
        any_gone = False
        for name, error in answers.items():
            parent = self._waiting.get(name)
            if parent is None:  # listed while it was probed
                continue
            if isinstance(error, ShardNotFoundError | TrimmedDataError):
                parent.shard.status = ShardStatus.FINISHED
                del self._waiting[name]
                any_gone = True
            else:
                self._goes_on_waiting(parent, error)
        self._warn()
        return any_gone

    def _goes_on_waiting(self, parent: _UnlistedParent, error: WatcherError | None) -> None:
        now = self._clock.monotonic()
        if error is None:
            parent.there = now if parent.there is None else parent.there
            parent.troubles = 0
        else:  # what does not answer keeps the others waiting: the more seldom it is asked
            parent.troubles += 1
        parent.due = now + backoff(
            max(1, parent.troubles),
            self._timing.probe_parent_seconds,
            self._timing.probe_parent_seconds_max,
        )
        parent.reason = str(error or "no listing shows it")

    def _warn(self) -> None:
        """Logs one line for all that wait for long and were not named yet."""
        since = self._clock.monotonic() - self._timing.unlisted_parent_warn_seconds
        new = [
            each
            for each in self._waiting.values()
            if each.asked is not None and each.asked <= since and not each.warned
        ]
        if not new:
            return
        for each in new:
            each.warned = True
        first = new[0]
        about = {"stream": self._arn, "shard": first.shard.id}
        if len(new) == 1:
            text = f"Shard {first.shard.id} can't be read yet, and its children wait for it"
        else:
            names = ", ".join(each.shard.id for each in new[:_NAMED])
            more = f" and {len(new) - _NAMED} more" if len(new) > _NAMED else ""
            text = f"Shards {names}{more} can't be read yet, and their children wait for them"
        logger.warning(f"{text}: {first.reason}", extra=about)

    def __len__(self) -> int:
        return len(self._waiting)
