"""Parents that only their child's listing names: gone since long, or not listed yet."""

from __future__ import annotations

import logging
import math

import msgspec

from watcher.clock import Clock
from watcher.errors import ServiceError, ShardNotFoundError, StreamError, TrimmedDataError
from watcher.reading.lineage import Status, Tracked
from watcher.service.model import Service, TrimHorizon

logger = logging.getLogger("watcher")

# A parent that is there, though no listing shows it, will be listed soon, or never.
_HIDDEN_SECONDS = 60.0
_UNSAID_SECONDS = 10.0
_PAUSE_SECONDS = 1.0


class _Hidden(msgspec.Struct):
    """A parent whose turn has come, but that no listing shows; times are monotonic seconds."""

    shard: Tracked
    due: float
    asked: float | None = None
    """When it was asked about first."""
    there: float | None = None
    """Since when it is known to be there."""
    said: bool = False


class HiddenParents:
    """Whether such a parent can be read.

    Its own parent is unknown: if the listing only lags, there may be one that has to be read
    before it. Most are gone, which the service tells when it is asked for an iterator.
    """

    def __init__(self, clock: Clock) -> None:
        self.listed_at = -math.inf
        """When the last listing came that shows none of them."""
        self._clock = clock
        self._waiting: dict[str, _Hidden] = {}

    def sorted_out(self, ready: list[Tracked]) -> list[Tracked]:
        """Those of the ready shards that may be read now; the others wait here."""
        now = self._clock.monotonic()
        waiting, self._waiting = self._waiting, {}
        free = []
        for shard in ready:
            hidden = waiting.get(shard.id) or _Hidden(shard, now)
            if shard.expected or self._is_overdue(hidden):
                free.append(shard)
            else:
                self._waiting[shard.id] = hidden
        return free

    def _is_overdue(self, hidden: _Hidden) -> bool:
        # Not by the clock: while no listing comes, none can show it.
        return hidden.there is not None and self.listed_at - hidden.there >= _HIDDEN_SECONDS

    def has_overdue(self) -> bool:
        """Whether one has waited for so long that it is read without being listed."""
        return any(map(self._is_overdue, self._waiting.values()))

    def to_ask(self) -> str | None:
        """The one to ask the service about now."""
        now = self._clock.monotonic()
        return next((name for name, each in self._waiting.items() if each.due <= now), None)

    def ask(self, shard_id: str, arn: str, service: Service) -> bool:
        """Ask whether it is there; one that is gone is finished, and True is answered."""
        hidden = self._waiting[shard_id]
        now = self._clock.monotonic()
        hidden.due = now + _PAUSE_SECONDS
        hidden.asked = now if hidden.asked is None else hidden.asked
        try:
            service.iterator(arn, shard_id, TrimHorizon())
            hidden.there = now if hidden.there is None else hidden.there
            reason = "no listing shows it"
        except (ShardNotFoundError, TrimmedDataError):
            hidden.shard.status = Status.FINISHED
            del self._waiting[shard_id]
            return True
        except (ServiceError, StreamError) as error:
            reason = str(error)
        if now - hidden.asked >= _UNSAID_SECONDS and not hidden.said:
            hidden.said = True
            text = f"Shard {shard_id} can't be read yet, and its children wait for it: {reason}"
            logger.warning(text, extra={"stream": arn, "shard": shard_id})
        return False

    def __len__(self) -> int:
        return len(self._waiting)
