"""Batches of one shard's records: when they are called, tried again, given up, held."""

import asyncio
import json
import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.support.hand_clock import HandClock
from tests.support.wire import shard_key
from watcher import Record
from watcher.clock import CLOCK, Clock
from watcher.delivery.batches import Batches
from watcher.delivery.dispatcher import Dispatcher
from watcher.delivery.failures import FailureLog, FailurePolicy
from watcher.delivery.handler import Failure
from watcher.delivery.retries import Retries
from watcher.errors import HandlerError


def record(number: int, shard: str = "s") -> Record:
    change = {"SequenceNumber": str(number), "ApproximateCreationDateTime": time.time()}
    return Record.from_json(json.dumps({"dynamodb": change}).encode(), shard)


class Function:
    """Notes what it was called with; `fails` says how many of a batch go well, or raises."""

    def __init__(self, fails: Callable[[list[int]], int] | None = None) -> None:
        self.calls: list[list[int]] = []
        self._fails = fails

    def __call__(self, records: Sequence[Record]) -> int:
        self.calls.append(numbers(records))
        return len(records) if self._fails is None else self._fails(numbers(records))


def numbers(records: Sequence[Record]) -> list[int]:
    return [int(each.sequence_number) for each in records]


class Batched:
    """Batches of a function, and what they ask for: each retry is granted at once."""

    def __init__(
        self, function: Function, clock: Clock = CLOCK, retries: float = 0, **settings: Any
    ) -> None:
        self.batches = Batches("f", function, clock=clock, **settings)
        self.given_up: list[list[int]] = []
        self.failures: list[Failure] = []
        self.pauses: list[float | None] = []
        self.retries = True
        self._retries = Retries(FailurePolicy(retries=retries), FailureLog())

    def add(self, *numbers: int, shard: str = "s") -> None:
        for number in numbers:
            self.follow(partial(self.batches.handle, record(number, shard)))

    def page_end(self, shard_id: str = "s") -> None:
        self.follow(partial(self.batches.page_end, shard_key(shard_id)))

    def follow(self, step: Callable[[], object]) -> None:
        try:
            step()
        except Failure as failure:
            self.failures.append(failure)
            self.pauses.append(self._retries.next_in("f", failure))
            given_up = self.pauses[-1] is None
            if given_up:
                self.given_up.append(numbers(failure.records))
            if given_up or self.retries:
                self.follow(partial(self.batches.go_on, failure, given_up=given_up))


def bad(*poison: int) -> Callable[[list[int]], int]:
    """Batches with one of these numbers fail as a whole."""

    def fails(numbers: list[int]) -> int:
        if set(poison) & set(numbers):
            raise ValueError("poison")
        return len(numbers)

    return fails


def test_a_batch_is_called_when_full_or_at_a_pages_end() -> None:
    function = Function()
    made = Batched(function, size=2)
    made.add(1, 2, 3)
    assert function.calls == [[1, 2]]
    made.batches.tick()
    assert function.calls == [[1, 2]]
    assert made.batches.first_pending(shard_key("s")) == "3"
    assert made.batches.waiting() == {shard_key("s"): 1}
    made.page_end()
    assert function.calls == [[1, 2], [3]]
    assert made.batches.first_pending(shard_key("s")) is None
    assert made.batches.waiting() == {}


def test_with_a_window_a_batch_waits_for_its_end() -> None:
    function, clock = Function(), HandClock()
    made = Batched(function, clock, window=0.05)
    made.add(1)
    made.page_end()
    made.batches.tick()
    assert function.calls == []
    clock.sleep(0.06)
    made.batches.tick()
    assert function.calls == [[1]]


def test_partial_failures_go_on_from_the_first_that_failed() -> None:
    left = [2, 1, 2, 1, 0]
    function = Function(lambda numbers: left.pop(0))
    made = Batched(function, retries=1)
    made.add(1, 2, 3, 4, 5)
    made.page_end()
    assert function.calls == [[1, 2, 3, 4, 5], [3, 4, 5], [4, 5]]
    assert made.given_up == []
    made.add(6, 7, 8)
    made.page_end()
    assert function.calls[3:] == [[6, 7, 8], [7, 8]]
    assert made.given_up == [[7, 8]]


def test_what_nobody_has_go_on_stays_unsettled() -> None:
    function = Function(bad(1))
    made = Batched(function, retries=math.inf)
    made.retries = False
    made.add(1)
    made.page_end()
    assert made.batches.first_pending(shard_key("s")) == "1"
    made.add(2)
    made.batches.drain()  # not again: 2 must not come before 1
    assert function.calls == [[1]]
    assert made.given_up == []


@pytest.mark.parametrize("error", [GeneratorExit, asyncio.CancelledError, SystemExit])
def test_whatever_a_call_raises_is_its_batchs_failure(error: type[BaseException]) -> None:
    def fails(numbers: list[int]) -> int:
        raise error

    function = Function(fails)
    made = Batched(function, retries=1)
    made.add(1)
    made.page_end()
    assert function.calls == [[1], [1]]
    assert made.given_up == [[1]]


# How each call ends: so many of its records go well, or it raises.
OUTCOMES = st.lists(st.none() | st.integers(0, 5), max_size=30)


@given(
    st.lists(st.sampled_from("ab"), max_size=12),
    OUTCOMES,
    st.integers(1, 5),
    st.integers(0, 2),
)
def test_each_record_goes_well_or_is_given_up_once_and_in_order(
    shards: list[str], outcomes: list[int | None], size: int, retries: int
) -> None:
    well: list[int] = []

    def call(numbers: list[int]) -> int:
        outcome = outcomes.pop() if outcomes else len(numbers)
        if outcome is None:
            raise ValueError("planned")
        well.extend(numbers[:outcome])
        return min(outcome, len(numbers))

    made = Batched(Function(call), size=size, retries=retries)
    settled: dict[str, list[int]] = {"a": [], "b": []}
    for number, shard in enumerate(shards):
        made.add(number, shard=shard)
    for shard in "ab":
        made.page_end(shard)
        assert made.batches.first_pending(shard_key(shard)) is None
    for number in well + [each for part in made.given_up for each in part]:
        settled[shards[number]].append(number)
    assert sorted(settled["a"] + settled["b"]) == list(range(len(shards)))
    for shard in "ab":
        of_shard = [number for number in well if shards[number] == shard]
        assert of_shard == sorted(of_shard)


# Under the dispatcher's policies


def test_under_stop_the_records_stay_unsettled_and_the_error_says_which() -> None:
    made = Batches("f", Function(bad(1)))
    dispatcher = Dispatcher([made], FailurePolicy("stop"))
    for number in (1, 2):
        dispatcher.deliver(record(number))
    with pytest.raises(HandlerError, match="f failed on 2 records from 1 to 2 of s: ValueError"):
        dispatcher.page_end(shard_key("s"))
    assert dispatcher.first_pending(shard_key("s")) == "1"
    dispatcher.close()
    assert dispatcher.first_pending(shard_key("s")) == "1"


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


def test_the_checkpoint_is_saved_before_a_retry_and_the_end_of_the_watch_leaves_the_rest(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, saved = HandClock(), list[tuple[float, str | None]]()

    def save() -> None:
        saved.append((clock.passed, dispatcher.first_pending(shard_key("s"))))
        if len(saved) == 3:
            dispatcher.shutdown.request()

    function = Function(bad(2))
    made = Batches("f", function, size=2, clock=clock)
    policy = FailurePolicy.parse("retry")
    dispatcher = Dispatcher([made], policy, clock=clock, before_retry=save)
    dispatcher.deliver(record(1))
    dispatcher.deliver(record(2))
    assert [number for _, number in saved] == ["1"] * 3
    assert [at for at, _ in saved] == pytest.approx([0, 0.1, 0.3], rel=0.2)
    assert function.calls == [[1, 2]] * 3
    assert dispatcher.pending_count == 2
    dispatcher.close()
    assert function.calls == [[1, 2]] * 3
    assert caplog.messages[0].endswith("; trying again until it succeeds")
    assert caplog.messages[1:] == [
        "handler f has not processed 2 records of s; a checkpoint stays before them"
    ]
