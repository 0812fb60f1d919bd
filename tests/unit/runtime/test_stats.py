"""What the figures of a watch say: how old the delivered is, what waits, how much is done."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.hand_clock import HandClock
from tests.support.times import NOON
from watcher.aws.counters import Counters, SharedCounters
from watcher.aws.model import Shard, ShardKey, TrimHorizon
from watcher.delivery.dispatcher import Dispatcher
from watcher.delivery.failures import FailurePolicy
from watcher.delivery.handler import Handler
from watcher.observability.watch_stats import Totals, WatchStats
from watcher.runtime.stats import StatsCollector, StreamStats
from watcher.streams.lineage import Lineage, ShardStatus


class Watch:
    """A watch's figures, its clocks and its shards' processes played by the test."""

    def __init__(self, *shards: Shard) -> None:
        self.clock = HandClock()
        self.counters = Counters()
        self.figures = StatsCollector(1.0, SharedCounters(8), self.clock)
        self.totals = Totals()
        self.lineage = Lineage(TrimHorizon())
        self.lineage.update(shards)
        self.dispatcher = Dispatcher([Handler("seen", print)], FailurePolicy())
        self.readers: dict[str, Counters] = {}

    def begin(self, shard: str) -> None:
        self.lineage.shards[shard].status = ShardStatus.RUNNING
        self.readers[shard] = self.figures.counters(ShardKey("", shard))

    def deliver(self, shard: str, count: int, age: float) -> None:
        """Records that were created so many seconds ago."""
        self.totals.records += count
        self.totals.tables[""]["INSERT"] += count
        created = self.clock.time() - age
        self.figures.moved(ShardKey("", shard), created, self.totals)

    def finish(self, shard: str) -> None:
        self.lineage.shards[shard].status = ShardStatus.FINISHED
        self.figures.reading_ended(ShardKey("", shard), for_good=True)

    def look(self) -> WatchStats:
        standing = StreamStats("", self.lineage, self.clock.time(), self.counters)
        return self.figures.collect(self.totals, [standing], self.dispatcher)


@pytest.fixture
def watch() -> Any:
    made = Watch(Shard("a"), Shard("b", "a"))
    made.begin("a")
    return made


def test_a_shard_that_is_behind_lags_by_the_age_of_what_was_delivered(watch: Watch) -> None:
    watch.clock.sleep(7)
    assert watch.look().lags == {ShardKey("", "a"): 7} and watch.look().reached is None
    watch.readers["a"].read(10)
    watch.deliver("a", 4, age=3600)
    assert (watch.look().lag, watch.look().queued) == (3600, 6)
    watch.clock.sleep(5)
    assert watch.look().lag == 3605
    assert watch.look().reached == NOON.timestamp() + 7 - 3600


def test_a_shard_is_caught_up_once_all_was_delivered_and_nothing_more_is_there(
    watch: Watch,
) -> None:
    watch.readers["a"].read(10)
    watch.readers["a"].reach_tip(watch.clock.monotonic())
    watch.deliver("a", 9, age=3600)
    assert watch.look().lag == 3600
    watch.deliver("a", 1, age=3600)
    assert watch.look().lag == 0


def test_an_idle_shards_first_record_for_hours_is_no_lag_of_hours(watch: Watch) -> None:
    watch.readers["a"].read(1)
    watch.deliver("a", 1, age=0)
    watch.clock.sleep(7200)
    watch.readers["a"].reach_tip(watch.clock.monotonic())
    watch.clock.sleep(1)
    watch.readers["a"].read(500)  # on their way
    assert watch.look().lag == 1
    watch.deliver("a", 1, age=2)
    assert watch.look().lag == 2


def test_a_caught_up_shard_whose_reads_stop_lags_since_the_last_one(watch: Watch) -> None:
    watch.readers["a"].reach_tip(watch.clock.monotonic())
    watch.clock.sleep(3)
    assert watch.look().lag == 0
    watch.clock.sleep(60)
    assert watch.look().lag == 63


def test_a_finished_shard_has_no_lag_and_its_calls_still_count(watch: Watch) -> None:
    watch.counters.call("DescribeStream")
    watch.readers["a"].call("GetRecords", 3)
    watch.readers["a"].throttle()
    assert watch.look().calls["GetRecords"] == 3
    watch.finish("a")
    watch.begin("b")
    watch.readers["b"].call("GetRecords")
    now = watch.look()
    assert (now.calls["GetRecords"], now.calls["DescribeStream"], now.throttles) == (4, 1, 1)
    assert list(now.lags) == [ShardKey("", "b")]
    assert (now.shards.open, now.shards.finished, now.shards.waiting) == (1, 1, 0)


def test_a_process_that_died_in_the_middle_leaves_nothing_in_the_queue(watch: Watch) -> None:
    watch.readers["a"].read(10)
    watch.deliver("a", 4, age=5)
    watch.figures.reading_ended(ShardKey("", "a"), for_good=False)
    assert watch.look().queued == 0
    assert watch.figures.counters(ShardKey("", "a")) is watch.readers["a"]
    watch.readers["a"].read(6)
    assert watch.look().queued == 6


def test_observers_have_processed_what_they_did_not_fail_on(watch: Watch) -> None:
    watch.deliver("a", 10, age=0)
    watch.dispatcher.failed["", "seen"] += 3
    now = watch.look()
    assert (now.handled, now.failed, now.failures) == ({("", "seen"): 7}, {("", "seen"): 3}, 3)
