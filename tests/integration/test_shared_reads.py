"""A shard that allows only so many reads a second, over sockets and on a clock of its own."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from tests.simulator import Simulator
from tests.support.hand_clock import HandClock
from tests.support.pulled import Pulled
from watcher.aws.client import CallRateLimiter, StreamsClient
from watcher.aws.config import AwsConfig
from watcher.aws.connect import for_worker
from watcher.call_pool import CallPool
from watcher.pull.backlog import BacklogReader


@pytest.fixture(autouse=True)
def listings_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CallRateLimiter, "turn", lambda self: 0.0)


class Passing(HandClock):
    """The simulator's time passes with it, and somebody writes twice a second."""

    def __init__(self, sim: Simulator, *, writes: bool = True) -> None:
        super().__init__()
        self._sim = sim
        self._due = 0.5 if writes else float("inf")

    def sleep(self, seconds: float) -> None:
        until = self.passed + seconds
        while self._due <= until:
            self._go(self._due)
            self._sim.write("a")
            self._due += 0.5
        self._go(until)

    def _go(self, until: float) -> None:
        self._sim.advance(max(0.0, until - self.passed))
        self.passed = max(until, self.passed)


class Shares:
    """Counts reads, and how many of them are throttled."""

    def __init__(self, sim: Simulator) -> None:
        self._sim = sim
        self.begin()

    def begin(self) -> None:
        self._before = self._counts()

    def _counts(self) -> tuple[int, int]:
        return self._sim.injected["rate-limit"], self._sim.calls["GetRecords"]

    @property
    def throttled(self) -> float:
        (throttled, reads), before = self._counts(), self._before
        return (throttled - before[0]) / (reads - before[1])


def client(sim: Simulator) -> StreamsClient:
    return for_worker(AwsConfig("us-east-1", endpoint_url=sim.endpoint), sim.stream_arn)


def steadily(clock: HandClock, shares: Shares, step: Callable[[], object]) -> None:
    """For two minutes, after a first one in which the rate is found."""
    for seconds in (60, 120):
        shares.begin()
        until = clock.passed + seconds
        while clock.passed < until:
            step()


@pytest.mark.parametrize("allowed", [5.0, 1.0])
def test_few_reads_of_a_stream_that_is_pulled_are_throttled(
    simulator: Simulator, allowed: float
) -> None:
    clock, shares = Passing(simulator), Shares(simulator)
    made = Pulled(client(simulator), simulator.stream_arn, "latest", clock=clock)
    simulator.set_faults(shard_reads_per_second=allowed)
    pulled: list[str] = []

    def step() -> None:
        if (record := next(made)) is None:
            clock.sleep(0.05)
        else:
            pulled.append(record.sequence_number)

    steadily(clock, shares, step)
    assert shares.throttled < 0.05
    written = [record.sequence_number for record in simulator.records]
    assert pulled == written[: len(pulled)] and len(pulled) >= len(written) - 5


def test_few_reads_up_to_now_are_throttled(
    simulator: Simulator, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "watcher")
    simulator.write("a", 400)
    simulator.set_faults(shard_reads_per_second=1.0, max_records=2)
    clock, shares = Passing(simulator, writes=False), Shares(simulator)
    calls = CallPool(threads=False)
    made = BacklogReader(simulator.stream_arn, client(simulator), clock=clock, calls=calls)
    assert len(list(made.read())) == 400
    assert shares.throttled < 0.05
    assert clock.passed < 300, "what LATEST says is asked for by few reads"
    assert "1 shard of orders is open; read up to now (" in caplog.text
