"""Handles parents that only their children name: gone long ago, or not listed yet."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping

import msgspec

from watcher.clock import Clock
from watcher.errors import ShardNotFoundError, TrimmedDataError, WatcherError
from watcher.retry import Backoff
from watcher.streams.lineage import TrackedShard

_UNLISTED_PARENT_SECONDS = 60.0
"""The time after which an existing parent is read although no listing shows it."""
_PARENT_PROBE_BACKOFF = Backoff(first_seconds=1.0, longest_seconds=4.0)
"""The delays between probes of such a parent while nothing answers."""
_UNLISTED_PARENT_WARN_SECONDS = 10.0
"""The time after which an unreadable parent is logged."""

logger = logging.getLogger("watcher")

# The number of parents named in one log line.
_NAMED = 3


class _UnlistedParent(msgspec.Struct):
    """A parent that is ready, but in no listing; times are monotonic seconds."""

    shard: TrackedShard
    due_at: float
    probed_at: float | None = None
    """The time of the first probe."""
    reason: str = "it does not answer"
    """The reason why it can't be read yet."""
    exists_since: float | None = None
    """The time since which it is known to exist."""
    failures: int = 0
    """The number of failed probes in a row."""
    warned: bool = False


class UnlistedParents:
    """Finds out which of the parents that no listing shows can be read.

    An unlisted parent's own parent is unknown: if the listing lags, that one may have to be read
    first. Most are gone, which the service reports when asked for an iterator.
    """

    def __init__(self, arn: str, clock: Clock) -> None:
        self._arn = arn
        self._listed_at = -math.inf  # the last listing, which shows none of them
        self._clock = clock
        self._waiting: dict[str, _UnlistedParent] = {}

    def on_listing(self, *, asked_at: float) -> None:
        """Notes the (monotonic) time before a listing's call; the next `readable` uses it."""
        self._listed_at = asked_at

    def readable(self, ready: list[TrackedShard]) -> list[TrackedShard]:
        """Returns the ready shards that may be read now; the others wait here."""
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
        # By the last listing, not the clock: without listings, none can show it.
        return (
            parent.exists_since is not None
            and self._listed_at - parent.exists_since >= _UNLISTED_PARENT_SECONDS
        )

    def to_probe(self) -> tuple[str, ...]:
        """Returns the shards to probe now."""
        if not self._waiting:  # nearly always: it is asked in every pass of a loop
            return ()
        now = self._clock.monotonic()
        return tuple(each.shard.id for each in self._waiting.values() if each.due_at <= now)

    @property
    def due_in(self) -> float:
        """Seconds until a shard is to be probed; infinite where none waits."""
        if not self._waiting:
            return math.inf
        return min(each.due_at for each in self._waiting.values()) - self._clock.monotonic()

    def on_probe(self, shard_ids: Iterable[str]) -> None:
        """Notes that these shards are being probed; warns of those without an answer for long."""
        now = self._clock.monotonic()
        for name in shard_ids:
            if (parent := self._waiting.get(name)) is not None and parent.probed_at is None:
                parent.probed_at = now
        self._warn()

    def on_answers(self, answers: Mapping[str, WatcherError | None]) -> bool:
        """Finishes the shards that are gone; returns True if there were any.

        The others are probed again.
        """
        any_gone = False
        for name, error in answers.items():
            parent = self._waiting.get(name)
            if parent is None:  # listed while it was probed
                continue
            if isinstance(error, ShardNotFoundError | TrimmedDataError):
                parent.shard.finish()
                del self._waiting[name]
                any_gone = True
            else:
                self._probe_again(parent, error)
        self._warn()
        return any_gone

    def _probe_again(self, parent: _UnlistedParent, error: WatcherError | None) -> None:
        now = self._clock.monotonic()
        if error is None:
            parent.exists_since = now if parent.exists_since is None else parent.exists_since
            parent.failures = 0
        else:  # a failed probe delays the others: its shard is probed less often
            parent.failures += 1
        delay = _PARENT_PROBE_BACKOFF.after(max(1, parent.failures))
        parent.due_at = now + delay
        parent.reason = str(error or "no listing shows it")

    def _warn(self) -> None:
        """Logs one line for all parents that have waited long and were not named yet."""
        since = self._clock.monotonic() - _UNLISTED_PARENT_WARN_SECONDS
        new = [
            each
            for each in self._waiting.values()
            if each.probed_at is not None and each.probed_at <= since and not each.warned
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
