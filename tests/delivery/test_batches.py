"""Batches of one shard's records: when they are called, tried again, split, given up, held."""

import asyncio
import json
import time
from collections.abc import Callable, Sequence

import pytest

from watcher import Record
from watcher.delivery import batches
from watcher.delivery.batches import Batches, Settings
from watcher.delivery.dispatcher import Dispatcher, OnError
from watcher.delivery.observer import Observer
from watcher.errors import ObserverError


def record(number: int, shard: str = "s", created: float | None = None) -> Record:
    change = {"SequenceNumber": str(number), "ApproximateCreationDateTime": created or time.time()}
    return Record.from_json(json.dumps({"dynamodb": change}).encode(), shard)


class Function:
    """Notes what it was called with; `fails` says how many of a batch go well, or raises."""

    def __init__(self, fails: Callable[[list[int]], int] | None = None) -> None:
        self.calls: list[list[int]] = []
        self.given_up: list[list[int]] = []
        self._fails = fails

    def __call__(self, records: Sequence[Record]) -> int:
        numbers = [int(each.sequence_number) for each in records]
        self.calls.append(numbers)
        return len(numbers) if self._fails is None else self._fails(numbers)

    def give_up(self, records: Sequence[Record], error: BaseException) -> None:
        self.given_up.append([int(each.sequence_number) for each in records])


def batched(function: Function, **settings: object) -> Batches:
    made = Batches(function, Settings(**settings))  # type: ignore[arg-type]
    made.give_up = function.give_up
    return made


def add(made: Batches, *numbers: int, shard: str = "s") -> None:
    for number in numbers:
        made.add(record(number, shard))


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "_RETRY_SECONDS", 0.0)


def bad(*poison: int) -> Callable[[list[int]], int]:
    """Batches with one of these numbers fail as a whole."""

    def fails(numbers: list[int]) -> int:
        if set(poison) & set(numbers):
            raise ValueError("poison")
        return len(numbers)

    return fails


def test_a_batch_is_called_when_full_or_at_a_pages_end() -> None:
    function = Function()
    made = batched(function, size=2)
    add(made, 1, 2, 3)
    assert function.calls == [[1, 2]]
    made.tick()
    assert function.calls == [[1, 2]]
    assert made.unsettled("s") == "3"
    made.page_end("s")
    assert function.calls == [[1, 2], [3]]
    assert made.unsettled("s") is None


def test_shards_have_batches_of_their_own() -> None:
    function = Function()
    made = batched(function, size=2)
    add(made, 1, shard="a")
    add(made, 2, shard="b")
    add(made, 3, shard="a")
    assert function.calls == [[1, 3]]
    assert made.unsettled("b") == "2"


def test_with_a_window_a_batch_waits_for_its_end() -> None:
    function = Function()
    made = batched(function, window=0.05)
    add(made, 1)
    made.page_end("s")
    made.tick()
    assert function.calls == []
    time.sleep(0.06)
    made.tick()
    assert function.calls == [[1]]


def test_a_failing_batch_is_tried_again_and_then_given_up() -> None:
    function = Function(bad(2))
    made = batched(function, retries=2)
    add(made, 1, 2)
    made.page_end("s")
    assert function.calls == [[1, 2]] * 3
    assert function.given_up == [[1, 2]]
    assert made.unsettled("s") is None


def test_partial_failures_go_on_from_the_first_that_failed() -> None:
    left = [2, 1, 2, 1, 0]
    function = Function(lambda numbers: left.pop(0))
    made = batched(function, retries=1)
    add(made, 1, 2, 3, 4, 5)
    made.page_end("s")
    assert function.calls == [[1, 2, 3, 4, 5], [3, 4, 5], [4, 5]]
    assert function.given_up == []
    add(made, 6, 7, 8)
    made.page_end("s")
    assert function.calls[3:] == [[6, 7, 8], [7, 8]]
    assert function.given_up == [[7, 8]]


def test_bisecting_finds_the_one_bad_record() -> None:
    function = Function(bad(6))
    made = batched(function, bisect=True, retries=1)
    add(made, *range(1, 9))
    made.page_end("s")
    assert function.given_up == [[6]]
    well = [number for numbers in function.calls if 6 not in numbers for number in numbers]
    assert well == [1, 2, 3, 4, 5, 7, 8]
    assert function.calls.count([6]) == 2  # splitting doesn't count as a retry


def test_records_that_are_too_old_are_given_up_unseen() -> None:
    function = Function()
    made = batched(function, max_age=60.0)
    for number, age in ((1, 100), (2, 90), (3, 0)):
        made.add(record(number, created=time.time() - age))
    made.page_end("s")
    assert function.given_up == [[1, 2]]
    assert function.calls == [[3]]


def test_the_end_of_the_watch_leaves_a_failing_batch_unsettled() -> None:
    function = Function(bad(1))
    made = batched(function, retries=-1)
    add(made, 1)
    made.stop()
    made.page_end("s")
    assert made.unsettled("s") == "1"
    add(made, 2)
    made.settle_all()  # not again: 2 must not come before 1
    assert function.calls == [[1]]
    assert function.given_up == []


def test_each_failed_call_is_told_before_what_follows() -> None:
    told: list[str] = []
    function = Function(lambda numbers: 1 if len(numbers) == 3 else 0)
    made = batched(function, retries=0)
    made.on_failure = lambda error: told.append(str(error))
    add(made, 1, 2, 3)
    made.page_end("s")
    assert function.calls == [[1, 2, 3]]
    assert told == ["the first that it reported as failed is 2"]
    assert function.given_up == [[2, 3]]


@pytest.mark.parametrize("error", [GeneratorExit, asyncio.CancelledError, SystemExit])
def test_whatever_a_call_raises_is_its_batchs_failure(error: type[BaseException]) -> None:
    def fails(numbers: list[int]) -> int:
        raise error

    function = Function(fails)
    made = batched(function, retries=1)
    add(made, 1)
    made.page_end("s")
    assert function.calls == [[1], [1]]
    assert function.given_up == [[1]]


# Under the dispatcher's policies


def test_under_stop_the_records_stay_unsettled_and_the_error_says_which() -> None:
    made = Batches(Function(bad(1)), Settings(retries=0))
    dispatcher = Dispatcher([Observer("f", made.add, batches=made)], OnError("stop"))
    for number in (1, 2):
        dispatcher.deliver(record(number))
    with pytest.raises(ObserverError, match="f failed on 2 records from 1 to 2 of s: ValueError"):
        dispatcher.page_end("s")
    assert dispatcher.unsettled("s") == "1"
    dispatcher.close()
    assert dispatcher.unsettled("s") == "1"


def test_a_batch_that_a_record_fills_stops_the_watch_with_the_same_words() -> None:
    made = Batches(Function(bad(1)), Settings(retries=0, size=1))
    dispatcher = Dispatcher([Observer("f", made.add, batches=made)], OnError("stop"))
    with pytest.raises(ObserverError, match=r"^observer f failed on record 1 of s: ValueError"):
        dispatcher.deliver(record(1))


def test_the_oldest_unsettled_record_of_several_observers_counts() -> None:
    small, large = Batches(Function(), Settings(size=2)), Batches(Function(), Settings(size=3))
    observers = [Observer("f", made.add, batches=made) for made in (small, large)]
    dispatcher = Dispatcher(observers, OnError())
    assert dispatcher.unsettled("s") is None
    for number in (8, 9, 10):
        dispatcher.deliver(record(number))
    assert dispatcher.unsettled("s") == "10"
    dispatcher.deliver(record(11))
    assert dispatcher.unsettled("s") == "11"
    dispatcher.settle("s")
    assert dispatcher.unsettled("s") is None
