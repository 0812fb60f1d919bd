"""The figures of a watch, as displays, metrics and probes get them."""

from __future__ import annotations

from collections import Counter, deque
from typing import Protocol

import msgspec

from watcher.aws.model import ShardKey
from watcher.aws.price import Bill
from watcher.clock import CLOCK
from watcher.observability.timing import FIGURES_TIMING


class Health(msgspec.Struct, frozen=True):
    """Findings about a watch, a line each."""

    stuck: tuple[str, ...] = ()
    """Due, and not even attempted: a restart may help."""
    unready: tuple[str, ...] = ("the watch has not begun yet",)
    """Wrong beside that."""
    trouble: str = ""
    """Why the positions can't be used: all that counts for one that stands by."""


class Totals(msgspec.Struct):
    """The counts of a watch, kept while it goes on."""

    records: int = 0
    filtered: int = 0
    """Read, and kept from the handlers by a filter."""
    kinds: Counter[str] = msgspec.field(default_factory=Counter)
    shards: int = 0
    restarts: int = 0
    losses: int = 0
    saved: bool = True
    """False where the last save of the positions failed."""
    failures: int = 0
    """How often a handler has failed for good, on a record or as it was closed."""
    dead_letters: int = 0
    """How many of these are kept as dead letters."""
    unhandled: int = 0
    """How many of them are records that are kept nowhere."""
    bill: Bill = Bill(0, None)
    """The cost of the reading."""
    stopped: bool = False
    """True where it was told to stop, and may have left something unread."""


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
    handled: dict[str, int] = {}
    """Records that each handler has processed."""
    failed: dict[str, int] = {}
    """Records that each handler has failed on, retries not counted."""
    retries: dict[str, int] = {}
    """How often each handler was tried again."""
    retrying: dict[str, float] = {}
    """For how many seconds each handler has been tried again with the same records."""
    shards: Shards = Shards()
    lags: dict[ShardKey, float] = {}
    """For each shard being read, how many seconds old what is delivered of it is; 0: caught up."""
    queued: int = 0
    """Records that were read and are not delivered yet."""
    calls: dict[str, int] = {}
    """API calls, by operation."""
    health: Health = Health()
    bill: Bill = Bill(0, None)
    """The cost of the reading."""
    throttles: int = 0
    restarts: int = 0
    losses: int = 0
    saved: bool = True
    """False where the last save of the positions failed."""
    done: float | None = None
    """The share delivered of all that is to be read (0 to 1); None where the watch has no end."""
    reached: float | None = None
    """The creation time (epoch seconds) that all shards being read have reached, where known."""

    @property
    def records(self) -> int:
        """Records delivered."""
        return sum(self.kinds.values())

    @property
    def failures(self) -> int:
        """Records that a handler has failed on."""
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
        while now - self._counts[0][0] > FIGURES_TIMING.rate_seconds and len(self._counts) > 2:
            self._counts.popleft()
        began, before = self._counts[0]
        return (count - before) / (now - began) if now > began else 0.0
