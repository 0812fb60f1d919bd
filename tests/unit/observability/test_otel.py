"""Metrics for OpenTelemetry, at a receiver of OTLP: those of Prometheus, by their names."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry

from tests.support.otlp import Receiver, receiving
from watcher.aws.model import ShardKey
from watcher.observability.exporter import exporting
from watcher.observability.heartbeat import Heartbeat
from watcher.observability.http_server import PrometheusCollector
from watcher.observability.instruments import Instrument, LatestMetrics, Series
from watcher.observability.timing import ExporterTiming
from watcher.observability.watch_stats import Durations, LeaseState, Shards, WatchStats

HTTP = ["otlp_proto_http"]
PATIENT = ExporterTiming(end_seconds=5.0)
ORDERS = "arn:aws:dynamodb:eu-west-1:123456789012:table/orders/stream/2026"
SNAPSHOT = WatchStats(
    tables={"orders": {"INSERT": 7}},
    handled={("orders", "print_json"): 7},
    durations={"print_json": Durations([3, 4, *8 * [0]], 0.02)},
    lease=LeaseState.HELD,
    shards=Shards(open=2),
    lags={ShardKey(ORDERS, "shardId-1"): 1.5},
    calls={"GetRecords": 3},
    saved=False,
)
# What has no value yet is not sent.
UNSEEN = {f"watcher_handler_{name}" for name in ("failures", "retries", "retrying_seconds")}


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    with receiving() as made:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", made.endpoint)
        yield made


def test_it_sends_what_prometheus_reads_and_at_the_end_the_last_figures(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "50")
    with exporting(None, Heartbeat.shared(), HTTP, timing=PATIENT) as exporter:
        exporter.show(SNAPSHOT)
        receiver.wait_for(
            lambda: (
                receiver.metrics
                and receiver.metrics[-1].get(("watcher_records", "orders", "INSERT")) == 7
            )
        )
        exporter.show(WatchStats(tables={"orders": {"INSERT": 9}}))
    last = receiver.metrics[-1]
    assert last["watcher_records", "orders", "INSERT"] == 9
    assert last["watcher_records", "orders", "REMOVE"] == 0
    key = "watcher_records", "orders", "INSERT"
    there = next(found for found in receiver.metrics if key in found)
    all_of_them = {name for found in receiver.metrics for name, *_ in found}
    latest = LatestMetrics()
    latest.update(SNAPSHOT)
    registry = CollectorRegistry()
    registry.register(PrometheusCollector(latest))
    assert there and all_of_them | UNSEEN == {family.name for family in registry.collect()}
    series = [each for each in latest.series() if isinstance(each, Series)]
    counters = {each.name for each in series if each.kind is Instrument.COUNTER}
    assert receiver.monotonic == counters - UNSEEN
    seen = [found for found in receiver.metrics if found.get(("watcher_shards", "open")) == 2]
    assert seen[0]["watcher_shard_lag_seconds", "orders", "shardId-1"] == 1.5
    assert seen[0]["watcher_checkpoint_saved",] == 0
    assert seen[0]["watcher_lease_held",] == 1 and seen[0]["watcher_standing_by",] == 0
    assert seen[0]["watcher_handler_seconds", "print_json"] == 0.02
    assert seen[0]["watcher_handler_seconds", "print_json", "0.005"] == 4
    assert receiver.units["watcher_shard_lag_seconds"] == "s"
    assert receiver.units["watcher_handler_seconds"] == "s"
    assert receiver.units["watcher_records"] == "{record}"
    assert {each["service.name"] for each in receiver.resources} == {"watcher"}


def test_a_receiver_that_hangs_keeps_the_end_no_longer_than_it_may(
    receiver: Receiver, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "90")
    receiver.status = 0
    heartbeat = Heartbeat.shared()
    with exporting(None, heartbeat, HTTP, timing=ExporterTiming(end_seconds=1.0)) as exporter:
        exporter.show(SNAPSHOT)
        heartbeat.stop()
        began = time.monotonic()
    assert time.monotonic() - began < 60  # who sends it gives up after 90 s by itself
    assert "OpenTelemetry: the last metrics could not be sent in time" in caplog.messages


def test_it_sends_where_the_environment_says_now_also_from_a_fork_servers_process(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = threading.Event()
    other = threading.Thread(target=done.wait)
    other.start()
    try:
        with receiving() as later:
            for place in (receiver, later):
                monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", place.endpoint)
                with exporting(None, Heartbeat.shared(), HTTP, timing=PATIENT) as exporter:
                    exporter.show(SNAPSHOT)
                place.wait_for(lambda place=place: place.metrics)  # type: ignore[misc]
    finally:
        done.set()
        other.join()
