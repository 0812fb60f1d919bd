"""When a shard is read: as often as it allows, and ahead of its turn behind a full page."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import cast

import pytest

from tests.simulator import Simulator
from tests.support.blocking_reader import BlockingReader
from tests.support.eventually import eventually
from tests.support.hand_clock import HandClock
from watcher.aws.config import AwsConfig
from watcher.aws.connect import for_worker
from watcher.aws.model import Service, TrimHorizon
from watcher.streams import read_rate
from watcher.streams.messages import Message, Page
from watcher.streams.read_rate import AdaptiveRateLimit, PageFetcher


class Slots:
    """A shard's reads: a bucket with a second's worth of them, as far as AWS tells."""

    def __init__(self, allowed: float) -> None:
        self.allowed = allowed
        self._tokens = max(allowed, 1.0)
        self._then = 0.0

    def is_free(self, now: float) -> bool:
        most = max(self.allowed, 1.0)
        self._tokens = min(most, self._tokens + (now - self._then) * self.allowed)
        self._then = now
        if self._tokens < 1 - 1e-9:
            return False
        self._tokens -= 1
        return True


class Reader:
    """Reads a shard that always has more."""

    def __init__(self, slots: Slots, latency: float = 0.01) -> None:
        self.slots = slots
        self.clock = HandClock()
        self.rate = AdaptiveRateLimit(self.clock)
        self._latency = latency
        self._chance = random.Random(1)

    def read_for(self, seconds: float) -> tuple[float, float]:
        """The throttled share, and the reads a second that came through."""
        clock, begin = self.clock, self.clock.passed
        free = throttled = 0
        while clock.passed < begin + seconds:
            self.rate.on_read()
            if self.slots.is_free(clock.passed):
                free += 1
                self.rate.on_success()
            else:
                throttled += 1
                self.rate.on_throttled()
            clock.sleep(self._latency * self._chance.uniform(0.5, 2))
            clock.sleep(self.rate.delay())
        return throttled / (free + throttled), free / (clock.passed - begin)


@pytest.mark.parametrize("latency", [0.001, 0.03, 0.08])
@pytest.mark.parametrize("allowed", [5.0, 4.0, 2.0, 1.0])
def test_few_reads_are_throttled_and_nearly_all_that_is_allowed_is_had(
    allowed: float, latency: float
) -> None:
    reader = Reader(Slots(allowed), latency)
    reader.read_for(180)
    share, rate = reader.read_for(1800)
    assert share < 0.05
    assert rate >= 0.9 * allowed


def test_once_throttled_reads_are_200_ms_apart_at_least() -> None:
    reader = Reader(Slots(1e9), latency=0.0)
    reader.rate.on_throttled()
    reader.read_for(60)
    share, rate = reader.read_for(60)
    assert share == 0.0
    assert rate == pytest.approx(5.0, rel=0.02)


def test_a_limit_that_nobody_sees_for_minutes_is_forgotten() -> None:
    reader = Reader(Slots(1e9))
    reader.rate.on_throttled()
    reader.read_for(400)
    assert reader.rate.delay() == 0.0


@pytest.fixture
def reader(simulator: Simulator, monkeypatch: pytest.MonkeyPatch) -> BlockingReader:
    """Of a shard with two full pages, and half a one."""
    simulator.set_faults(max_records=2)
    simulator.write("a", 5)
    monkeypatch.setattr(read_rate, "FULL_BYTES", 700)
    arn = simulator.stream_arn
    streams = for_worker(AwsConfig("us-east-1", endpoint_url=simulator.endpoint), arn)
    return BlockingReader(streams, arn, simulator.shards[0].id, TrimHorizon())


def counts(messages: list[Message]) -> list[int]:
    return [message.count for message in messages if isinstance(message, Page)]


def test_behind_a_full_page_the_next_is_asked_for_before_its_turn(
    simulator: Simulator, reader: BlockingReader
) -> None:
    def asked(calls: int) -> bool:
        return simulator.calls["GetRecords"] == calls

    for count, calls in ((2, 2), (2, 3), (1, 3), (0, 4)):
        assert sum(counts(reader.read())) == count
        eventually(partial(asked, calls))


def test_where_others_read_too_nothing_is_asked_for_ahead(
    simulator: Simulator, reader: BlockingReader
) -> None:
    simulator.fail_next("GetRecords", "ThrottlingException")
    reader.read()
    assert (counts(reader.read()), simulator.calls["GetRecords"]) == ([2], 2)


class Noting:
    """A service whose answers name what they were asked for, and whether ahead of its turn."""

    def get_records(self, iterator: str, limit: int | None = None) -> bytes:
        return iterator.encode()

    def prefetch_records(self, iterator: str) -> Callable[[], bytes]:
        return lambda: iterator.encode() + b" ahead"


@pytest.mark.parametrize(
    ("seconds", "asked", "answer"),
    [
        pytest.param(0.05, "two", b"two ahead", id="its turn comes"),
        pytest.param(1.0, "two", b"two", id="an empty answer of long ago is no word of now"),
        pytest.param(0.05, "other", b"other", id="something else is to be read"),
    ],
)
def test_what_came_ahead_is_taken_where_it_is_the_answer_and_once(
    monkeypatch: pytest.MonkeyPatch, seconds: float, asked: str, answer: bytes
) -> None:
    monkeypatch.setattr(read_rate, "FULL_BYTES", 10)
    clock, service = HandClock(), cast(Service, Noting())
    made = PageFetcher(clock)
    made.prefetch(b'{"NextShardIterator":"two","Records":[]}', service)
    clock.sleep(seconds)
    assert made.fetch(asked, service) == answer
    assert made.fetch("two", service) == b"two"
