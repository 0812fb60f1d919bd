"""The exporter: it never keeps the manager, and answers from what it got last."""

from __future__ import annotations

import logging
import os
import signal
import socket
import urllib.request
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.support.eventually import eventually
from watcher.aws.model import ShardKey
from watcher.errors import UsageError
from watcher.observability.exporter import Exporter, exporting
from watcher.observability.heartbeat import Heartbeat
from watcher.observability.watch_stats import LeaseState, WatchStats
from watcher.version import __version__

# Some 70 bytes a shard: more than a pipe holds.
ORDERS = "arn:aws:dynamodb:eu-west-1:123456789012:table/orders/stream/2026"
LARGE = {ShardKey(ORDERS, f"shardId-{number:020}-abcdef01"): 1.5 for number in range(3000)}


class Place(NamedTuple):
    exporter: Exporter
    url: str

    def text(self) -> str:
        with urllib.request.urlopen(self.url, timeout=60) as answer:
            return str(answer.read(), "utf-8")

    def show(self, stats: WatchStats, line: str) -> None:
        """As the manager does, without its pauses, until there is such a line."""

        def has_come() -> bool:
            self.exporter.show(stats)  # again: what a full pipe has left
            return line in self.text().splitlines()

        eventually(has_come)


@pytest.fixture(autouse=True)
def a_log_that_is_heard(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another test may have set it up as the command line does."""
    monkeypatch.setattr(logging.getLogger("watcher"), "propagate", True)
    caplog.set_level("INFO", "watcher")


@pytest.fixture
def place(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setattr("watcher.observability.exporter.SEND_SECONDS", 0.0)
    with exporting(0, Heartbeat.shared()) as exporter:
        yield Place(exporter, caplog.messages[0].removeprefix("Metrics: "))


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("192.0.2.1:9464", "can't listen there"),
        ("no.such.host.invalid:9464", "can't listen there"),
        *((bad, "give PORT, or HOST:PORT") for bad in (70000, "x", ":9464", "x:")),
    ],
)
def test_where_it_cant_listen_one_line_says_so(address: str | int, told: str) -> None:
    with pytest.raises(UsageError) as caught, exporting(address, Heartbeat()):
        pass
    assert str(caught.value).startswith(f"metrics_port {address}: ") and told in str(caught.value)


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
def test_an_ipv6_address_stands_in_brackets(caplog: pytest.LogCaptureFixture) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("no IPv6 here")
    with exporting("[::1]:0", Heartbeat()):
        assert caplog.messages[0].startswith("Metrics: http://[::1]:")


def test_a_scrape_before_the_first_figures_is_all_zeros(place: Place) -> None:
    assert "watcher_filtered_records_total 0.0" in place.text()
    assert "watcher_shard_lag_seconds{" not in place.text()
    assert "\nwatcher_lease_held " not in place.text()
    line = 'watcher_records_total{kind="INSERT",table="orders"} 0.0'
    place.show(WatchStats(tables={"orders": {}}), line)


def test_the_lease_and_the_build_are_gauges(place: Place) -> None:
    place.show(WatchStats(lease=LeaseState.STANDING_BY), "watcher_standing_by 1.0")
    for line in ("watcher_lease_held 0.0", f'version="{__version__}"}} 1.0'):
        assert f"{line}\n" in place.text()


def test_figures_larger_than_a_pipe_arrive_whole(place: Place) -> None:
    line = f'watcher_shard_lag_seconds{{shard="{max(LARGE).shard_id}",table="orders"}} 1.5'
    place.show(WatchStats(lags=LARGE), line)
    assert place.text().count("watcher_shard_lag_seconds{") == len(LARGE)


def test_an_exporter_that_takes_nothing_keeps_nobody_and_then_gets_the_last(place: Place) -> None:
    pid = place.exporter.process.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        for number in range(200):
            place.exporter.show(WatchStats(lags=LARGE, filtered=number))
    finally:
        os.kill(pid, signal.SIGCONT)
    place.show(WatchStats(filtered=1000), "watcher_filtered_records_total 1000.0")


def test_an_exporter_that_died_is_told_of_once(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    place.exporter.process.kill()
    place.exporter.process.join()
    for _ in range(3):
        place.exporter.show(WatchStats())
    assert len([text for text in caplog.messages if "has ended" in text]) == 1
