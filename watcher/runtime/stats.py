"""Collects the figures of a watch for its displays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from watcher.aws.arns import table_name
from watcher.aws.counters import Counters, SharedCounters
from watcher.aws.model import ShardKey
from watcher.clock import CLOCK, Clock
from watcher.delivery.dispatcher import Dispatcher
from watcher.observability.watch_stats import (
    Health,
    LeaseState,
    Shards,
    Totals,
    WatchStats,
)
from watcher.records.record import creation_time
from watcher.streams.lineage import Lineage, ShardStatus

# The time beyond the poll delay up to which an idle shard's lag counts as none.
_SLOW_ANSWER_SECONDS = 2.0


class ShardStats(msgspec.Struct):
    """The progress of a shard that is being read; times are the service's epoch seconds."""

    counters: Counters
    since: float  # monotonic
    moved_at: float = 0.0  # monotonic
    """The time of its position's last move."""
    paused_at: float = 0.0  # monotonic
    """The last time at which its stream was paused."""
    held_at: float = 0.0  # monotonic
    """The last time at which delivery held its worker up."""
    delivered: int = 0
    last: float | None = None


class StreamStats(NamedTuple):
    """The state of one stream."""

    arn: str
    lineage: Lineage
    now: float
    """The service's clock, in epoch seconds."""
    counters: Counters
    """The manager's calls of a service; several streams may share them."""
    snapshot: float | None = None
    """The share read of the table's items; None without a snapshot."""


class StatsCollector:
    """Collects each shard's reading and delivery; `collect` returns the figures."""

    def __init__(
        self,
        poll_max_seconds: float,
        shared_counters: SharedCounters,
        clock: Clock = CLOCK,
        *,
        bounded: bool = False,
    ) -> None:
        self._bounded = bounded
        self._ended = Counters()
        """The counts of shards that have ended."""
        self._shared_counters = shared_counters
        self._idle_lag_limit = 2 * poll_max_seconds + _SLOW_ANSWER_SECONDS
        self.shards: dict[ShardKey, ShardStats] = {}
        """The shards that are being read, or about to be."""
        self._passed_before = 0
        self._finished = 0
        self._clock = clock

    def counters(self, shard_key: ShardKey) -> Counters:
        """Returns the counters of a shard's worker, which its replacement continues."""
        if shard_key not in self.shards:
            self.shards[shard_key] = ShardStats(
                self._shared_counters.new(), self._clock.monotonic()
            )
        return self.shards[shard_key].counters

    @property
    def queued(self) -> int:
        """The number of records that were read and not delivered."""
        shards = self.shards.values()
        return sum(max(0, shard.counters.records_read - shard.delivered) for shard in shards)

    def has_read(self, totals: Totals) -> bool:
        """True once a read of any shard has succeeded."""
        if totals.records or totals.filtered:
            return True
        counters_of_shards = [self._ended, *(shard.counters for shard in self.shards.values())]
        return any(counters.answers for counters in counters_of_shards)

    def is_read(self, arn: str, since: float) -> bool:
        """True where a read of a stream has succeeded since this (monotonic) time."""
        shards = (shard for shard_key, shard in self.shards.items() if shard_key.stream == arn)
        return any(shard.counters.answered_at > since for shard in shards)

    def moved(self, shard_key: ShardKey, created: float | None, totals: Totals) -> None:
        """Notes the creation time of a shard's last delivered (or filtered out) record."""
        shard = self.shards.get(shard_key)
        counted = totals.records + totals.filtered
        before, self._passed_before = self._passed_before, counted
        if shard is None:
            return
        shard.delivered += counted - before
        shard.moved_at = self._clock.monotonic()
        if created is not None:
            shard.last = creation_time(created).timestamp()

    def reading_ended(self, shard_key: ShardKey, *, for_good: bool) -> None:
        """Notes that no worker reads this shard: ever again, or until a restart."""
        if shard_key not in self.shards:
            return
        shard = self.shards[shard_key]
        if not for_good:
            shard.counters.hand_on(shard.delivered)
            return
        self._ended.add([shard.counters])
        self._shared_counters.free(shard.counters)
        self._finished += 1
        del self.shards[shard_key]

    def collect(
        self,
        totals: Totals,
        streams: Sequence[StreamStats],
        dispatcher: Dispatcher,
        health: Health | None = None,
        lease: LeaseState = LeaseState.NONE,
    ) -> WatchStats:
        """Returns the current figures."""
        now = self._clock.monotonic()
        shards = self.shards.values()
        counters = Counters()
        own = {id(stream.counters): stream.counters for stream in streams}
        counters.add([self._ended, *own.values(), *(shard.counters for shard in shards)])
        times = {stream.arn: stream.now for stream in streams}
        waiting = sum(
            shard.status is ShardStatus.WAITING
            for stream in streams
            for shard in stream.lineage.shards.values()
        )
        reached = (shard.last for shard in shards if shard.last is not None)
        # A table without delivered records has its figures at 0.
        names = {table_name(stream.arn) for stream in streams} | {*totals.tables}
        tables = {name: dict(totals.tables.get(name, {})) for name in sorted(names)}
        handled = dispatcher.processed({name: sum(tables[name].values()) for name in tables})
        return WatchStats(
            collected_at=now,
            tables=tables,
            filtered=totals.filtered,
            handled=handled,
            failed={key: dispatcher.failed[key] for key in handled},
            retries=dict.fromkeys(dispatcher.names, 0) | dispatcher.retries.counts,
            retrying=dict.fromkeys(dispatcher.names, 0.0) | dispatcher.retries.lasting(),
            shards=Shards(len(self.shards), self._finished, waiting),
            lags={
                shard_key: self._lag(shard, now, times.get(shard_key.stream, 0.0))
                for shard_key, shard in self.shards.items()
            },
            queued=self.queued,
            health=health or Health(),
            lease=lease,
            calls=counters.calls,
            throttles=counters.throttles,
            restarts=totals.restarts,
            losses=totals.losses,
            saved=totals.saved,
            bounded=self._bounded,
            reached=min(reached, default=None),
            snapshot=_share_scanned(streams),
        )

    def _lag(self, shard: ShardStats, now: float, service_time: float) -> float:
        tip, read = shard.counters.tip, shard.counters.records_read
        if tip is not None and tip[1] == shard.delivered:
            idle = now - tip[0]
            return 0.0 if read == shard.delivered and idle < self._idle_lag_limit else idle
        if shard.last is None:
            return now - shard.since
        return max(0.0, service_time - shard.last)


def _share_scanned(streams: Sequence[StreamStats]) -> float | None:
    """The share of all tables' items, each table counting the same; None where none are left."""
    shares = [stream.snapshot for stream in streams if stream.snapshot is not None]
    return sum(shares) / len(shares) if any(share < 1 for share in shares) else None
