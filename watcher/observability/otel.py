"""Sends the watch's metrics to OpenTelemetry, as the `OTEL_*` variables configure it."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    HistogramDataPoint,
    Metric,
    MetricExporter,
    MetricExportResult,
    MetricReader,
    MetricsData,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.metrics.export import Histogram as HistogramData

from watcher.observability import telemetry
from watcher.observability.instruments import Histogram, Instrument, LatestMetrics, Series
from watcher.observability.watch_stats import DURATIONS


@contextmanager
def sending(exporters: Sequence[str], latest: LatestMetrics) -> Iterator[None]:
    """Sends the latest metrics periodically, and once more at the end.

    For a process that does not fork: a fork's SDK threads would send the same metrics again.
    """
    telemetry.forward_sdk_log()
    created = [telemetry.create_exporter("metrics", name) for name in exporters]
    readers = [
        each
        if isinstance(each, MetricReader)
        else PeriodicExportingMetricReader(_with_histograms(each, latest))
        for each in created
    ]
    provider = MeterProvider(readers, telemetry.resource(), shutdown_on_exit=False)
    meter = provider.get_meter("watcher")
    for series in latest.series():
        if isinstance(series, Histogram):
            continue
        is_counter = series.kind is Instrument.COUNTER
        create = meter.create_observable_counter if is_counter else meter.create_observable_gauge
        observed = [_observed(latest, series.name)]
        create(series.name, observed, unit=series.unit, description=series.text)
    try:
        yield
    finally:
        provider.shutdown()


def _observed(
    latest: LatestMetrics, name: str
) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def observe(options: CallbackOptions) -> Iterator[Observation]:
        found = (each for each in latest.series() if isinstance(each, Series))
        (series,) = (each for each in found if each.name == name)
        for labels, value in series.values.items():
            yield Observation(value, dict(zip(series.labels, labels, strict=True)))

    return observe


def _with_histograms(exporter: MetricExporter, latest: LatestMetrics) -> MetricExporter:
    """Makes an exporter send the histograms too: the SDK can't observe histograms."""
    send, began = exporter.export, time.time_ns()

    def export(
        metrics_data: MetricsData, timeout_millis: float = 10_000, **options: object
    ) -> MetricExportResult:
        added = [_metric(each, began) for each in latest.series() if isinstance(each, Histogram)]
        resource, *resources = metrics_data.resource_metrics
        scope, *scopes = resource.scope_metrics
        scope = dataclasses.replace(scope, metrics=[*scope.metrics, *added])
        resource = dataclasses.replace(resource, scope_metrics=[scope, *scopes])
        return send(MetricsData([resource, *resources]), timeout_millis, **options)

    exporter.export = export  # type: ignore[method-assign]
    return exporter


def _metric(histogram: Histogram, began: int) -> Metric:
    points = [
        HistogramDataPoint(
            attributes=dict(zip(histogram.labels, labels, strict=True)),
            start_time_unix_nano=began,
            time_unix_nano=time.time_ns(),
            count=sum(durations.counts),
            sum=durations.seconds,
            bucket_counts=durations.counts,
            explicit_bounds=DURATIONS,
            min=None,  # type: ignore[arg-type]  # optional in OTLP
            max=None,  # type: ignore[arg-type]
        )
        for labels, durations in histogram.values.items()
    ]
    data = HistogramData(points, AggregationTemporality.CUMULATIVE)
    return Metric(histogram.name, histogram.text, "s", data)
