"""The watch's metrics: their names, kinds, help texts and labels."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import NamedTuple, Protocol

import msgspec

from watcher.observability.timing import FIGURES_TIMING
from watcher.observability.watch_stats import WatchStats
from watcher.records.wire import KINDS


class Instrument(Enum):
    """The kind of a metric."""

    COUNTER = "counter"
    GAUGE = "gauge"


class Series(NamedTuple):
    """A metric with its values by labels; a metric without labels has one value."""

    kind: Instrument
    name: str
    text: str
    labels: tuple[str, ...]
    values: Mapping[tuple[str, ...], float]


class Metrics(Protocol):
    """An object that has metrics."""

    def series(self) -> Iterator[Series]:
        """Yields every metric; one with labels may have no values yet."""


class LatestMetrics:
    """The metrics of the latest statistics that the manager sent."""

    def __init__(self) -> None:
        self.stats = WatchStats()
        self._updated_at = time.monotonic()

    def update(self, stats: WatchStats) -> None:
        """Replaces the statistics."""
        self.stats, self._updated_at = stats, time.monotonic()

    def series(self) -> Iterator[Series]:
        """Yields every metric; one with labels may have no values yet."""
        now = self.stats
        # A series that begins at 0 shows its first increase.
        kinds = dict.fromkeys(KINDS, 0) | now.kinds
        yield _counter("records", "Records delivered, by kind of change.", kinds, "kind")
        yield _counter("filtered_records", "Records that a filter left out.", now.filtered)
        yield from self._of_handlers()
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

    def _of_handlers(self) -> Iterator[Series]:
        now = self.stats
        yield _counter(
            "handler_records", "Records that a handler has processed.", now.handled, "handler"
        )
        yield _counter(
            "handler_failures",
            "Records that a handler has failed on, retries not counted.",
            now.failed,
            "handler",
        )
        yield _counter(
            "handler_retries", "Times that a handler was tried again.", now.retries, "handler"
        )
        yield _gauge(
            "handler_retrying_seconds",
            "For how long a handler has been tried again with the same records; 0: it is not.",
            now.retrying,
            "handler",
        )

    def _lags(self) -> dict[tuple[str, ...], float]:
        """Returns the lags; they grow while a handler keeps the manager from sending new ones."""
        late = time.monotonic() - self._updated_at
        more = late if late > FIGURES_TIMING.loop_late_seconds else 0.0
        lags: dict[tuple[str, ...], float] = {}
        for shard_key, lag in self.stats.lags.items():
            labels = shard_key.table, shard_key.shard_id
            # On emulators, two streams of a table may have shards of one name.
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


class VerifyMetrics:
    """The metrics of comparisons of a copy with its table, one after another."""

    def __init__(self, table: str = "", copy: str = "") -> None:
        self._table, self._copy = table, copy
        self._differing: int | None = None
        self._items = 0
        self._at = 0.0
        self._error = ""

    def on_compared(self, items: int, differing: int, at: float) -> None:
        """Takes in the outcome of a comparison that began at this time, in epoch seconds."""
        self._items, self._differing, self._at, self._error = items, differing, at, ""

    def on_failed(self, error: str) -> None:
        """Takes in the reason why one did not come to its end."""
        self._error = error

    @property
    def problems(self) -> list[str]:
        """The present problems, one per line."""
        table, copy = self._table, self._copy
        found = []
        if self._differing is None:
            found.append(f"{table} is not compared with {copy} yet")
        elif self._differing:
            items = f"{self._differing:,} of {self._items:,} items"
            found.append(f"{table} differs from {copy} in {items}")
        if self._error:
            found.append(f"the last comparison of {table} with {copy} failed: {self._error}")
        return found

    def series(self) -> Iterator[Series]:
        """Yields every metric; none has a value before the first comparison has come to its end."""
        for name, text, value in (
            ("differences", "Items that differ, by the last comparison.", self._differing or 0),
            ("items", "Items that the last comparison has compared.", self._items),
            ("time_seconds", "The time of the last comparison, in epoch seconds.", self._at),
        ):
            values: dict[tuple[str, ...], float] = {}
            if self._differing is not None:
                values[self._table, self._copy] = value
            yield Series(
                Instrument.GAUGE, f"watcher_verify_{name}", text, ("table", "copy"), values
            )
