"""What a watch has done and where it stands, as handed to displays, metrics and probes."""

from __future__ import annotations

from collections import Counter, deque
from typing import Protocol

import msgspec

from watcher.aws.model import ShardKey
from watcher.aws.price import Bill
from watcher.clock import CLOCK

LATE_SECONDS = 60.0
"""A read, a delivery or a save that is due may take so long: a few time-outs, one after another."""


class Health(msgspec.Struct, frozen=True):
    """What is wrong, a line each."""

    stuck: tuple[str, ...] = ()
    """What was due and has not even been attempted: a restart may help."""
    unready: tuple[str, ...] = ("the watch has not begun yet",)
    """What is not as it should be, beside that."""
    trouble: str = ""
    """Why the positions can't be used: all that counts for one that stands by."""


_RATE_SECONDS = 3.0


class Totals(msgspec.Struct):
    """What a watch has done."""

    records: int = 0
    filtered: int = 0
    """Read, and kept from the observers by a filter."""
    kinds: Counter[str] = msgspec.field(default_factory=Counter)
    shards: int = 0
    restarts: int = 0
    losses: int = 0
    saved: bool = True
    """Whether the last save of the positions went well."""
    failures: int = 0
    bill: Bill = Bill(0, None)
    """What the reading has come to."""
    stopped: bool = False
    """Whether it was told to end, and may have left something unread."""


class Shards(msgspec.Struct, frozen=True):
    """How many shards there are: being read, read to their end, waiting for their parent's end."""

    open: int = 0
    finished: int = 0
    waiting: int = 0


class WatchStats(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one moment, counted from the beginning of the watch."""

    kinds: dict[str, int] = {}
    """Records delivered, by kind of change."""
    filtered: int = 0
    observed: dict[str, int] = {}
    """Records that each observer has processed."""
    failed: dict[str, int] = {}
    """Records that each observer has failed on, retries not counted."""
    shards: Shards = Shards()
    lags: dict[ShardKey, float] = {}
    """For each shard being read, how many seconds old what is delivered of it is; 0: caught up."""
    queued: int = 0
    """Records that were read and are not delivered yet."""
    calls: dict[str, int] = {}
    """API calls, by operation."""
    health: Health = Health()
    bill: Bill = Bill(0, None)
    """What the reading comes to."""
    throttles: int = 0
    restarts: int = 0
    losses: int = 0
    saved: bool = True
    """Whether the last save of the positions went well."""
    done: float | None = None
    """How much of what was to be read is delivered (0 to 1); None where the watch has no end."""
    reached: float | None = None
    """The creation time (epoch seconds) that all shards being read have reached, where known."""

    @property
    def records(self) -> int:
        """Records delivered."""
        return sum(self.kinds.values())

    @property
    def failures(self) -> int:
        """Records that an observer has failed on."""
        return sum(self.failed.values())

    @property
    def lag(self) -> float:
        """The largest lag of any shard, in seconds."""
        return max(self.lags.values(), default=0.0)


class Display(Protocol):
    """Something that shows a watch's figures while it goes on."""

    def show(self, snapshot: WatchStats) -> None:
        """Take the newest figures, a few times a second; must not block."""

    def close(self) -> None:
        """Nothing more comes. May be called twice, and from a signal handler."""


class Rate:
    """How fast a count has grown lately."""

    def __init__(self) -> None:
        self._counts: deque[tuple[float, int]] = deque()

    def at(self, count: int) -> float:
        """The growth per second, now that it has come to this."""
        now = CLOCK.monotonic()
        self._counts.append((now, count))
        while now - self._counts[0][0] > _RATE_SECONDS and len(self._counts) > 2:
            self._counts.popleft()
        began, before = self._counts[0]
        return (count - before) / (now - began) if now > began else 0.0
