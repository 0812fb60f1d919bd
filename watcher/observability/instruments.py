"""The watch's metrics: their names, kinds, help texts and labels."""

from __future__ import annotations

import platform
import time
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import NamedTuple, Protocol, TypeVar

import msgspec

from watcher.observability.timing import FIGURES_TIMING
from watcher.observability.watch_stats import Durations, LeaseState, WatchStats
from watcher.records.wire import KINDS
from watcher.version import __version__

_Labels = TypeVar("_Labels", bound=tuple[str, ...])


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
    unit: str = ""
    """OpenTelemetry's unit (UCUM); text in braces only annotates a count."""


class Histogram(NamedTuple):
    """A metric of durations, in seconds, by labels."""

    name: str
    text: str
    labels: tuple[str, ...]
    values: Mapping[tuple[str, ...], Durations]


class Metrics(Protocol):
    """A source of metrics."""

    def series(self) -> Iterator[Series | Histogram]:
        """Yields every metric; one with labels may have no values yet."""


class LatestMetrics:
    """The metrics of the latest statistics that the manager sent."""

    def __init__(self) -> None:
        self.stats = WatchStats()
        self._updated_at = time.monotonic()

    def update(self, stats: WatchStats) -> None:
        """Replaces the statistics."""
        self.stats, self._updated_at = stats, time.monotonic()

    def series(self) -> Iterator[Series | Histogram]:
        """Yields every metric; one with labels may have no values yet."""
        build = {(__version__, platform.python_version()): 1}
        text = "Always 1; the labels tell the versions."
        yield _labelled(Instrument.GAUGE, "build_info", text, "version python", build)
        yield from self._of_records()
        yield from self._of_handlers()
        yield from self._of_shards()
        yield from self._of_the_service()
        yield from self._of_the_checkpoint()

    def _of_records(self) -> Iterator[Series]:
        now = self.stats
        kinds = {
            (table, kind): count
            for table, counts in now.tables.items()
            # A series has to start at 0 to show its first increase.
            for kind, count in (dict.fromkeys(KINDS, 0) | counts).items()
        }
        text = "Records delivered, by table and kind of change."
        yield _labelled(Instrument.COUNTER, "records", text, "table kind", kinds, unit="{record}")
        text = "Records that a filter left out."
        yield _counter("filtered_records", text, now.filtered, "{record}")
        text = "Records read and not delivered yet."
        yield _gauge("queue_records", text, now.queued, "{record}")

    def _of_handlers(self) -> Iterator[Series | Histogram]:
        now = self.stats
        for name, text, counts in (
            ("handler_records", "Records that a handler has processed.", now.handled),
            (
                "handler_failures",
                "Records that a handler has failed on, retries not counted.",
                now.failed,
            ),
        ):
            yield _labelled(
                Instrument.COUNTER, name, text, "table handler", counts, unit="{record}"
            )
        yield Histogram(
            "watcher_handler_seconds",
            "How long a handler's calls took; of records handled together, each one's share.",
            ("handler",),
            {(name,): durations for name, durations in now.durations.items()},
        )
        text = "Times that a handler was tried again."
        yield _counter("handler_retries", text, now.retries, "{retry}", "handler")
        text = "For how long a handler has been tried again with the same records; 0: it is not."
        yield _gauge("handler_retrying_seconds", text, now.retrying, "s", "handler")

    def _of_shards(self) -> Iterator[Series]:
        now = self.stats
        text = (
            "How old the last record delivered of a shard being read is; 0 where it is caught up."
        )
        gauge = Instrument.GAUGE
        yield _labelled(gauge, "shard_lag_seconds", text, "table shard", self._lags(), unit="s")
        text = "Shards being read (open), read to their end, and waiting for their parent's end."
        yield _gauge("shards", text, msgspec.structs.asdict(now.shards), "{shard}", "state")
        text = "Workers that ended and were replaced."
        yield _counter("worker_restarts", text, now.restarts, "{process}")
        text = "Times that records were gone before they were read."
        yield _counter("data_losses", text, now.losses, "{loss}")

    def _of_the_service(self) -> Iterator[Series]:
        now = self.stats
        yield _counter("api_calls", "Calls of the AWS API.", now.calls, "{call}", "operation")
        yield _counter("throttles", "Calls that the service throttled.", now.throttles, "{call}")

    def _of_the_checkpoint(self) -> Iterator[Series]:
        text = "1 where the last save of the positions went well."
        yield _gauge("checkpoint_saved", text, int(self.stats.saved))
        lease = self.stats.lease
        for name, text, state in (
            ("lease_held", "1 where this watch holds its checkpoint's lease.", LeaseState.HELD),
            ("standing_by", "1 where this watch can take the lease over.", LeaseState.STANDING_BY),
        ):
            values = {} if lease is LeaseState.NONE else {(): int(lease is state)}
            yield _labelled(Instrument.GAUGE, name, text, "", values)

    def _lags(self) -> dict[tuple[str, ...], float]:
        """Returns the lags; they grow while a slow handler keeps the manager from updating them."""
        late = time.monotonic() - self._updated_at
        more = late if late > FIGURES_TIMING.loop_late_seconds else 0.0
        lags: dict[tuple[str, ...], float] = {}
        for shard_key, lag in self.stats.lags.items():
            labels = shard_key.table, shard_key.shard_id
            # On emulators, two streams of a table may have shards with the same id.
            lags[labels] = max(lag + more, lags.get(labels, 0.0))
        return lags


def _labelled(
    kind: Instrument,
    name: str,
    text: str,
    labels: str,
    values: Mapping[_Labels, float],
    *,
    unit: str = "",
) -> Series:
    """Returns a metric with these labels, whose names are separated by spaces."""
    by_labels: dict[tuple[str, ...], float] = dict(values.items())
    return Series(kind, f"watcher_{name}", text, tuple(labels.split()), by_labels, unit)


def _counter(
    name: str, text: str, value: float | Mapping[str, float], unit: str = "", label: str = ""
) -> Series:
    return _labelled(Instrument.COUNTER, name, text, label, _by_label(value), unit=unit)


def _gauge(
    name: str, text: str, value: float | Mapping[str, float], unit: str = "", label: str = ""
) -> Series:
    return _labelled(Instrument.GAUGE, name, text, label, _by_label(value), unit=unit)


def _by_label(value: float | Mapping[str, float]) -> Mapping[tuple[str, ...], float]:
    if not isinstance(value, Mapping):
        return {(): value}
    return {(each,): number for each, number in value.items()}
