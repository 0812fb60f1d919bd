"""Parents that only their child's listing names: gone since long, or not listed yet."""

from __future__ import annotations

import logging
import math

import msgspec

from watcher.aws.model import Service
from watcher.clock import Clock
from watcher.errors import NoAnswerYetError, ShardNotFoundError, TrimmedDataError, WatcherError
from watcher.retry import backoff
from watcher.streams.lineage import ShardStatus, TrackedShard

logger = logging.getLogger("watcher")

# A parent that is there, though no listing shows it, will be listed soon, or never.
_HIDDEN_SECONDS = 60.0
_UNSAID_SECONDS = 10.0
# So many of them are named in one line.
_NAMED = 3
_PAUSE_SECONDS = 1.0
_PAUSE_SECONDS_MAX = 4.0


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
    said: bool = False


class UnlistedParents:
    """Whether such a parent can be read.

    Its own parent is unknown: if the listing only lags, there may be one that has to be read
    before it. Most are gone, which the service tells when it is asked for an iterator.
    """

    def __init__(self, clock: Clock) -> None:
        self.listed_at = -math.inf
        """When the last listing came that shows none of them."""
        self._clock = clock
        self._waiting: dict[str, _UnlistedParent] = {}

    def sorted_out(self, ready: list[TrackedShard]) -> list[TrackedShard]:
        """Those of the ready shards that may be read now; the others wait here."""
        now = self._clock.monotonic()
        waiting, self._waiting = self._waiting, {}
        free = []
        for shard in ready:
            hidden = waiting.get(shard.id) or _UnlistedParent(shard, now)
            if shard.expected or self._is_overdue(hidden):
                free.append(shard)
            else:
                self._waiting[shard.id] = hidden
        return free

    def _is_overdue(self, hidden: _UnlistedParent) -> bool:
        # Not by the clock: while no listing comes, none can show it.
        return hidden.there is not None and self.listed_at - hidden.there >= _HIDDEN_SECONDS

    def has_overdue(self) -> bool:
        """Whether one has waited for so long that it is read without being listed."""
        return any(map(self._is_overdue, self._waiting.values()))

    def is_due(self) -> bool:
        """Whether the service is to be asked about some of them now."""
        now = self._clock.monotonic()
        return any(each.due <= now for each in self._waiting.values())

    def ask(self, arn: str, service: Service) -> bool:
        """Ask which of them are there; what is gone is finished, and True is answered.

        Those of which there is no answer yet are asked about again. Raises StillAskingError where
        that is so of all.
        """
        now = self._clock.monotonic()
        due = [each for each in self._waiting.values() if each.due <= now]
        for each in due:
            each.asked = now if each.asked is None else each.asked
        try:
            answers = service.probe(arn, [each.shard.id for each in due])
        except NoAnswerYetError:
            self._say(arn)
            raise
        gone = False
        for name, error in answers.items():
            hidden = self._waiting.get(name)
            if hidden is None:  # listed while it was asked about
                continue
            if isinstance(error, ShardNotFoundError | TrimmedDataError):
                hidden.shard.status = ShardStatus.FINISHED
                del self._waiting[name]
                gone = True
            else:
                self._goes_on_waiting(hidden, error)
        self._say(arn)
        return gone

    def _goes_on_waiting(self, hidden: _UnlistedParent, error: WatcherError | None) -> None:
        now = self._clock.monotonic()
        if error is None:
            hidden.there = now if hidden.there is None else hidden.there
            hidden.troubles = 0
        else:  # what does not answer keeps the others waiting: the more seldom it is asked
            hidden.troubles += 1
        hidden.due = now + backoff(max(1, hidden.troubles), _PAUSE_SECONDS, _PAUSE_SECONDS_MAX)
        hidden.reason = str(error or "no listing shows it")

    def _say(self, arn: str) -> None:
        """A line for all that have not been told of by now."""
        since = self._clock.monotonic() - _UNSAID_SECONDS
        new = [
            each
            for each in self._waiting.values()
            if each.asked is not None and each.asked <= since and not each.said
        ]
        if not new:
            return
        for each in new:
            each.said = True
        first = new[0]
        about = {"stream": arn, "shard": first.shard.id}
        if len(new) == 1:
            text = f"Shard {first.shard.id} can't be read yet, and its children wait for it"
        else:
            names = ", ".join(each.shard.id for each in new[:_NAMED])
            more = f" and {len(new) - _NAMED} more" if len(new) > _NAMED else ""
            text = f"Shards {names}{more} can't be read yet, and their children wait for them"
        logger.warning(f"{text}: {first.reason}", extra=about)

    def __len__(self) -> int:
        return len(self._waiting)
