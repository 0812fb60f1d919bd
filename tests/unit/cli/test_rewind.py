"""Stored positions that are moved back: what they lead to when a stream is resumed there."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.simulator import Simulator
from watcher import Stream
from watcher.aws.config import AwsConfig
from watcher.aws.connect import connect
from watcher.aws.model import AtTime, Position, TrimHorizon
from watcher.cli.positions import rewound
from watcher.streams.checkpoint_format import all_to_dict, from_json

AHEAD = 7200.0


@pytest.fixture
def simulator(monkeypatch: pytest.MonkeyPatch) -> Iterator[Simulator]:
    """A stream of two hours ago, whose clock the test moves on."""
    with Simulator(table="orders", shards=2, clock=lambda: time.time() - AHEAD) as made:
        for name, value in made.environment.items():
            monkeypatch.setenv(name, value)
        yield made


def at(simulator: Simulator) -> AtTime:
    return AtTime(datetime.fromtimestamp(int(simulator.now), UTC))


def moved(simulator: Simulator, token: dict[str, Any], to: AtTime | TrimHorizon) -> dict[str, Any]:
    service, _ = connect(simulator.stream_arn, AwsConfig())
    return all_to_dict([rewound(service, from_json(token), to)])


def read(start: Position | str | dict[str, Any], most: int = 10_000) -> tuple[list[str], Any]:
    """Reads a stream up to now; returns the numbers of the records, and the token behind them."""
    numbers: list[str] = []
    with Stream("orders", start) as stream:  # type: ignore[arg-type]
        while len(numbers) < most and (record := next(stream)) is not None:
            numbers.append(record.sequence_number)
        return numbers, stream.token


def test_what_was_read_since_a_time_comes_again(simulator: Simulator) -> None:
    simulator.write("a", 3)
    simulator.advance(600)
    time_of_deployment = at(simulator)
    simulator.rotate()
    written = simulator.write("a", 2)
    read_before, token = read("trim_horizon")
    assert len(read_before) == 5
    assert read(token)[0] == []
    assert read(moved(simulator, token, time_of_deployment))[0] == written
    assert sorted(read(moved(simulator, token, TrimHorizon()))[0]) == sorted(read_before)


def test_one_that_stands_at_a_record_that_is_gone_stays_there(simulator: Simulator) -> None:
    simulator.write("a", 3)
    _, token = read("trim_horizon", 1)
    (stored,) = (each for each in token["shards"] if "sequence_number" in each)
    simulator.trim(2, stored["shard_id"])
    again = moved(simulator, token, at(simulator))
    assert stored in again["shards"]


@pytest.mark.parametrize("seed", range(8))
def test_nothing_unread_is_skipped_and_all_since_the_time_comes_again(
    simulator: Simulator, seed: int
) -> None:
    rng = random.Random(seed)

    def live(steps: int) -> None:
        for _ in range(steps):
            if change := rng.choice([simulator.rotate, simulator.split, None, None, None]):
                change()
            simulator.write(rng.choice("abcd"), rng.randrange(4))
            simulator.advance(rng.randrange(120))

    live(rng.randrange(6))
    to, before = at(simulator), {each.sequence_number for each in simulator.records}
    live(rng.randrange(6))
    done, token = read("trim_horizon", rng.randrange(len(simulator.records) + 1))
    live(rng.randrange(3))
    again, _ = read(moved(simulator, token, to))
    records = {each.sequence_number: each for each in simulator.records}
    assert records.keys() - before <= set(again), "all since the time"
    assert records.keys() - set(done) <= set(again), "nothing is lost"
    assert len(again) == len(set(again))
    by_key: dict[str, list[int]] = {}
    for number in again:
        by_key.setdefault(str(records[number].key), []).append(int(number))
    assert all(numbers == sorted(numbers) for numbers in by_key.values())
