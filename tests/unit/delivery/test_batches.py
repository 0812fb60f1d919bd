"""Batches of one shard's records: when they are called, tried again, given up, held."""

import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.support.hand_clock import HandClock
from tests.support.wire import shard_key
from watcher import Record
from watcher.delivery.batches import Batches
from watcher.delivery.dispatcher import Dispatcher
from watcher.delivery.failures import FailurePolicy
from watcher.errors import HandlerError


def record(number: int, shard: str = "s") -> Record:
    change = {"SequenceNumber": str(number), "ApproximateCreationDateTime": time.time()}
    return Record.from_json(json.dumps({"dynamodb": change}).encode(), shard)


class Function:
    """Notes what it was called with; `fails` says how many of a batch go well, or raises."""

    def __init__(self, fails: Callable[[list[int]], int] = len) -> None:
        self.calls: list[list[int]] = []
        self._fails = fails

    def __call__(self, records: Sequence[Record]) -> int:
        self.calls.append([int(each.sequence_number) for each in records])
        return self._fails(self.calls[-1])


def test_a_batch_is_called_when_full_or_at_a_pages_end() -> None:
    function = Function()
    made = Batches("f", function, size=2)
    for number in (1, 2, 3):
        made.handle(record(number))
    made.tick()
    assert function.calls == [[1, 2]]
    assert made.first_pending(shard_key("s")) == "3"
    assert made.waiting() == {shard_key("s"): 1}
    made.page_end(shard_key("s"))
    assert function.calls == [[1, 2], [3]]
    assert made.first_pending(shard_key("s")) is None
    assert made.waiting() == {}


def test_with_a_window_a_batch_waits_for_its_end() -> None:
    function, clock = Function(), HandClock()
    made = Batches("f", function, window=0.05, clock=clock)
    made.handle(record(1))
    made.page_end(shard_key("s"))
    made.tick()
    assert function.calls == []
    clock.sleep(0.06)
    made.tick()
    assert function.calls == [[1]]


@given(
    shards=st.lists(st.sampled_from("ab"), max_size=12),
    # How each call ends: so many of its records go well, or it raises.
    outcomes=st.lists(st.none() | st.integers(0, 5), max_size=30),
    size=st.integers(1, 5),
    retries=st.integers(0, 2),
)
def test_each_record_goes_well_or_is_given_up_once_and_in_order(
    shards: list[str], outcomes: list[int | None], size: int, retries: int
) -> None:
    well: list[int] = []
    letters: list[dict[str, Any]] = []

    def call(numbers: list[int]) -> int:
        outcome = outcomes.pop() if outcomes else len(numbers)
        if outcome is None:
            raise ValueError("planned")
        well.extend(numbers[:outcome])
        return min(outcome, len(numbers))

    policy = FailurePolicy("dead-letter", retries, dead_letters=letters.append)
    made = Dispatcher([Batches("f", Function(call), size=size)], policy, clock=HandClock())
    for number, shard in enumerate(shards):
        made.deliver(record(number, shard))
    for shard in "ab":
        made.page_end(shard_key(shard))
        assert made.first_pending(shard_key(shard)) is None
    given_up = [int(letter["record"]["dynamodb"]["SequenceNumber"]) for letter in letters]
    assert sorted(well + given_up) == list(range(len(shards)))
    for shard in "ab":
        of_shard = [number for number in well if shards[number] == shard]
        assert of_shard == sorted(of_shard)


def test_under_stop_the_records_stay_unsettled_and_the_error_says_which() -> None:
    def fails(numbers: list[int]) -> int:
        raise ValueError("poison")

    function = Function(fails)
    dispatcher = Dispatcher([Batches("f", function)], FailurePolicy("stop"))
    for number in (1, 2):
        dispatcher.deliver(record(number))
    with pytest.raises(HandlerError, match="f failed on 2 records from 1 to 2 of s: ValueError"):
        dispatcher.page_end(shard_key("s"))
    assert dispatcher.first_pending(shard_key("s")) == "1"
    dispatcher.close()
    assert dispatcher.first_pending(shard_key("s")) == "1"
    assert function.calls == [[1, 2]], "nor is it called again, and a later record before them"


def test_the_oldest_unsettled_record_of_several_observers_counts() -> None:
    observers = [Batches("f", Function(), size=size) for size in (2, 3)]
    dispatcher = Dispatcher(observers, FailurePolicy())
    assert dispatcher.first_pending(shard_key("s")) is None
    for number in (8, 9, 10):
        dispatcher.deliver(record(number))
    assert dispatcher.first_pending(shard_key("s")) == "10"
    dispatcher.deliver(record(11))
    assert dispatcher.first_pending(shard_key("s")) == "11"
    dispatcher.drain(shard_key("s"))
    assert dispatcher.first_pending(shard_key("s")) is None
