"""Sends the watch's metrics to OpenTelemetry, as its `OTEL_*` variables configure it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader

from watcher.observability import telemetry
from watcher.observability.instruments import Instrument, LatestMetrics


@contextmanager
def sending(exporters: Sequence[str], latest: LatestMetrics) -> Iterator[None]:
    """Sends the latest metrics periodically, and once more at the end.

    For a process that does not fork: a fork's SDK threads would send the same metrics again.
    """
    telemetry.forward_sdk_log()
    made = [telemetry.create_exporter("metrics", name) for name in exporters]
    readers = [
        each if isinstance(each, MetricReader) else PeriodicExportingMetricReader(each)
        for each in made
    ]
    provider = MeterProvider(readers, telemetry.resource(), shutdown_on_exit=False)
    meter = provider.get_meter("watcher")
    for series in latest.series():
        is_counter = series.kind is Instrument.COUNTER
        create = meter.create_observable_counter if is_counter else meter.create_observable_gauge
        create(series.name, [_observed(latest, series.name)], description=series.text)
    try:
        yield
    finally:
        provider.shutdown()


def _observed(
    latest: LatestMetrics, name: str
) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def observe(options: CallbackOptions) -> Iterator[Observation]:
        (series,) = (each for each in latest.series() if each.name == name)
        for labels, value in series.values.items():
            yield Observation(value, dict(zip(series.labels, labels, strict=True)))

    return observe
