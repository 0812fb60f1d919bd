"""The figures of a watch for displays, metrics and probes."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from enum import StrEnum
from typing import Protocol

import msgspec

from watcher.aws.model import ShardKey
from watcher.clock import CLOCK

# The period over which the rate of records is measured.
_RATE_SECONDS = 3.0


class Health(msgspec.Struct, frozen=True):
    """Findings about a watch, one line each."""

    stuck: tuple[str, ...] = ()
    """Work that is due but was not even attempted: a restart may help."""
    unready: tuple[str, ...] = ("the watch has not begun yet",)
    """Other problems."""
    trouble: str = ""
    """Why the positions can't be used; a standby's only problem."""


class LeaseState(StrEnum):
    """A watch's state regarding its checkpoint's lease."""

    NONE = ""
    """The checkpoint has no lease, or there is no checkpoint."""
    HELD = "held"
    STANDING_BY = "standing by"
    """Another watch holds the lease; this one can take over."""
    UNUSABLE = "unusable"
    """The lease has run out or is lost, or a standby could not take it over."""


class Totals(msgspec.Struct):
    """The counts of a watch, updated while it runs."""

    records: int = 0
    filtered: int = 0
    """The number of records read, but left out by a filter."""
    tables: defaultdict[str, Counter[str]] = msgspec.field(
        default_factory=lambda: defaultdict(Counter)
    )
    """The records delivered of each table, by kind of change."""
    shards: int = 0
    restarts: int = 0
    losses: int = 0
    saved: bool = True
    """False where the last save of the positions failed."""
    failures: int = 0
    """The failures of handlers for good, on a record or in `close`."""
    dead_letters: int = 0
    """The number of these failures that are kept as dead letters."""
    unhandled: int = 0
    """The number of these failures whose records are kept nowhere."""
    stopped: bool = False
    """True if a stop was requested, so that records may be unread."""

    @property
    def kinds(self) -> Counter[str]:
        """The number of records delivered, by kind of change."""
        return sum(self.tables.values(), Counter())


class Shards(msgspec.Struct, frozen=True):
    """The numbers of shards: being read, read to their end, waiting for their parent's end."""

    open: int = 0
    finished: int = 0
    waiting: int = 0


class WatchStats(msgspec.Struct, frozen=True, kw_only=True):
    """The figures at one moment, counted from the start of the watch."""

    collected_at: float = msgspec.field(default_factory=CLOCK.monotonic)
    tables: dict[str, dict[str, int]] = {}
    """The number of records delivered from each table, by kind of change."""
    filtered: int = 0
    handled: dict[tuple[str, str], int] = {}
    """The number of processed records by table and handler."""
    failed: dict[tuple[str, str], int] = {}
    """The number of failed records by table and handler, without retries."""
    retries: dict[str, int] = {}
    """The number of each handler's retries."""
    retrying: dict[str, float] = {}
    """The seconds since each handler's first failure on its present records."""
    shards: Shards = Shards()
    lags: dict[ShardKey, float] = {}
    """The age of each shard's last delivered record, in seconds; 0 for one that is caught up."""
    queued: int = 0
    """The number of records read and not delivered yet."""
    calls: dict[str, int] = {}
    """The number of API calls by operation."""
    health: Health = Health()
    lease: LeaseState = LeaseState.NONE
    throttles: int = 0
    restarts: int = 0
    losses: int = 0
    saved: bool = True
    """False where the last save of the positions failed."""
    bounded: bool = False
    """True where the watch ends at what there is now."""
    snapshot: float | None = None
    """The share read of the tables' items (0 to 1); None where nothing is left to read."""
    reached: float | None = None
    """The creation time (epoch seconds) that all shards being read have reached, if known."""

    @property
    def kinds(self) -> Counter[str]:
        """The number of records delivered, by kind of change."""
        return sum(map(Counter, self.tables.values()), Counter())

    @property
    def handlers(self) -> list[str]:
        """The names of the handlers."""
        return [*self.retries]

    @property
    def records(self) -> int:
        """The number of records delivered."""
        return self.kinds.total()

    @property
    def failures(self) -> int:
        """The number of failed records."""
        return sum(self.failed.values())

    @property
    def lag(self) -> float:
        """The largest lag of any shard, in seconds."""
        return max(self.lags.values(), default=0.0)


class Display(Protocol):
    """An object that shows a watch's figures while it runs."""

    def show(self, stats: WatchStats) -> None:
        """Shows the newest figures, a few times a second; must not block."""

    def close(self) -> None:
        """Ends the display. May be called twice, and from a signal handler."""


class Rate:
    """The growth of a count per second, over the last seconds."""

    def __init__(self) -> None:
        self._counts: deque[tuple[float, int]] = deque()

    def at(self, count: int) -> float:
        """Returns the growth per second up to the present `count`."""
        now = CLOCK.monotonic()
        self._counts.append((now, count))
        while now - self._counts[0][0] > _RATE_SECONDS and len(self._counts) > 2:
            self._counts.popleft()
        began, before = self._counts[0]
        return (count - before) / (now - began) if now > began else 0.0
