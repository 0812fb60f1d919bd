"""The metrics that there are, by whatever way they are read."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import NamedTuple

import msgspec

from watcher.observability.watch_stats import WatchStats
from watcher.records.wire import KINDS

# From here on the manager is not just a moment late: an observer keeps it, most likely.
_STALE_SECONDS = 5.0


class Instrument(Enum):
    """What a number means."""

    COUNTER = "only grows"
    GAUGE = "is so just now"


class Series(NamedTuple):
    """A metric: its values by their labels; one without labels has one value."""

    kind: Instrument
    name: str
    text: str
    labels: tuple[str, ...]
    values: Mapping[tuple[str, ...], float]


class LastFigures:
    """The last figures that the manager has sent."""

    def __init__(self) -> None:
        self.snapshot = WatchStats()
        self._taken = time.monotonic()

    def take(self, snapshot: WatchStats) -> None:
        """These are the last ones from now on."""
        self.snapshot, self._taken = snapshot, time.monotonic()

    def series(self) -> Iterator[Series]:
        """Every metric; those with labels may have no values yet."""
        now = self.snapshot
        # A series that begins at 0 shows its first increase.
        kinds = dict.fromkeys(KINDS, 0) | now.kinds
        yield _counter("records", "Records delivered, by kind of change.", kinds, "kind")
        yield _counter("filtered_records", "Records that a filter left out.", now.filtered)
        yield _counter(
            "observer_records", "Records that an observer has processed.", now.handled, "observer"
        )
        yield _counter(
            "observer_failures",
            "Records that an observer has failed on, retries not counted.",
            now.failed,
            "observer",
        )
        yield Series(
            Instrument.GAUGE,
            "watcher_shard_lag_seconds",
            "How old the last record delivered of a shard being read is; 0 where it is caught up.",
            ("table", "shard"),
            self._lags(),
        )
        yield _gauge(
            "shards",
            "Shards being read (open), read to their end, and waiting for their parent's end.",
            msgspec.structs.asdict(now.shards),
            "state",
        )
        yield _gauge("queue_records", "Records read and not delivered yet.", now.queued)
        yield _counter("api_calls", "Calls of the AWS API.", now.calls, "operation")
        yield _gauge(
            "month_cost_dollars",
            "What GetRecords calls come to a month at the pace so far, free ones deducted.",
            now.bill.month or 0.0,
        )
        yield _counter("throttles", "Calls that the service throttled.", now.throttles)
        yield _counter(
            "worker_restarts", "Shard processes that ended and were replaced.", now.restarts
        )
        yield _counter(
            "data_losses", "Times that records were gone before they were read.", now.losses
        )
        yield _gauge(
            "checkpoint_saved", "1 where the last save of the positions went well.", int(now.saved)
        )

    def _lags(self) -> dict[tuple[str, ...], float]:
        """A manager that an observer keeps sends nothing: what is delivered grows old meanwhile."""
        late = time.monotonic() - self._taken
        more = late if late > _STALE_SECONDS else 0.0
        lags: dict[tuple[str, ...], float] = {}
        for origin, lag in self.snapshot.lags.items():
            labels = origin.table, origin.shard_id
            # Emulators number the shards of each of a table's streams from 0 on.
            lags[labels] = max(lag + more, lags.get(labels, 0.0))
        return lags


def _series(
    kind: Instrument, name: str, text: str, value: float | Mapping[str, float], label: str
) -> Series:
    values: dict[tuple[str, ...], float] = (
        {(each,): number for each, number in value.items()}
        if isinstance(value, Mapping)
        else {(): value}
    )
    return Series(kind, f"watcher_{name}", text, (label,) if label else (), values)


def _counter(name: str, text: str, value: float | Mapping[str, float], label: str = "") -> Series:
    return _series(Instrument.COUNTER, name, text, value, label)


def _gauge(name: str, text: str, value: float | Mapping[str, float], label: str = "") -> Series:
    return _series(Instrument.GAUGE, name, text, value, label)
