"""Each check can fail: the judge is fed a history in which a promise is broken."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from tests.simulation.judge import SILENT_SECONDS, Judge
from tests.simulation.scenario import Scenario
from tests.simulator.model import Shard, World
from watcher.streams.checkpoint_format import Token, TokenShard

NOW = 1_750_000_000.0


class Told:
    """A table with one shard, and a watch of it from the trim horizon."""

    def __init__(self, engine: str = "processes") -> None:
        self.now = 0.0
        self.world = World(lambda: NOW + self.now, 0)
        self.table = self.world.add_table("orders")
        self.table.enable(1, "KEYS_ONLY")
        self.judge = Judge(
            Scenario(0, engine), self.world, lambda: self.now, lambda actor, text: None
        )
        self.judge.begin(0.0)
        self.judge.run_begins()

    @property
    def shard(self) -> Shard:
        return next(iter(self.table.stream.shards.values()))

    def write(self, count: int = 1) -> list[str]:
        return self.table.write("a", count)

    def deliver(self, *numbers: str, shard: Shard | None = None) -> None:
        for number in numbers:
            self.judge.delivered((shard or self.shard).id, number, "a")

    def save(self, *shards: TokenShard, went_well: bool = True) -> None:
        token = Token("arn", [], list(shards), datetime.fromtimestamp(NOW, UTC))
        self.judge.saved(token, went_well=went_well)

    def again(self, how: str) -> None:
        self.judge.run_ends(how)
        self.judge.run_begins()

    @property
    def checks(self) -> set[str]:
        return {complaint.check for complaint in self.judge.complaints}


@pytest.fixture
def told() -> Told:
    return Told()


def test_a_good_history_has_no_complaint(told: Told) -> None:
    numbers = told.write(3)
    told.deliver(*numbers)
    told.save(TokenShard(told.shard.id, "after_sequence", numbers[-1]))
    told.judge.check_all_delivered()
    told.judge.check_losses()
    assert told.checks == set()


def does_not_come(told: Told) -> None:
    told.deliver(told.write(3)[0])
    told.judge.check_all_delivered()


def comes_twice(told: Told) -> None:
    [number] = told.write()
    told.deliver(number, number)


def was_never_written(told: Told) -> None:
    told.deliver("1" * 21)


def comes_before_an_earlier_one(told: Told) -> None:
    first, second = told.write(2)
    told.deliver(second, first)


def comes_before_its_parents_last(told: Told) -> None:
    [number], parent = told.write(), told.shard
    [child] = told.table.stream.split(parent.id, 1)
    told.table.write("b")
    told.judge.delivered(child.id, str(child.numbers[0]), "b")
    told.deliver(number, shard=parent)


def comes_again_after_an_end_in_order(told: Told) -> None:
    [number] = told.write()
    told.deliver(number)
    told.save(TokenShard(told.shard.id, "trim_horizon"))
    told.again("stopped")
    told.deliver(number)


def is_in_a_micro_batch_that_is_done_again_without_it(told: Told) -> None:
    told.judge.replayed(3, {told.shard.id: ["1", "2"]}, {told.shard.id: ["1"]})


def is_lost_and_not_said(told: Told) -> None:
    numbers = told.write(3)
    told.deliver(numbers[0])
    told.now = 100.0
    told.table.stream.trim(2, told.shard.id)
    told.deliver(numbers[2])
    told.judge.check_losses()


def is_said_to_be_lost_and_there(told: Told) -> None:
    told.write(3)
    told.judge.says(f"DATA LOSS: shard {told.shard.id} from 1: records may be gone", warning=True)


def is_waited_for_without_a_word(told: Told) -> None:
    told.write()
    told.now = SILENT_SECONDS + 1
    told.judge.check_silence()


def is_left_by_an_end_up_to_now(told: Told) -> None:
    told.write()
    told.again("done")
    told.judge.check_up_to_now()


@pytest.mark.parametrize(
    ("record", "check"),
    [
        (does_not_come, "lost"),
        (comes_twice, "repeated"),
        (was_never_written, "unknown"),
        (comes_before_an_earlier_one, "order"),
        (comes_before_its_parents_last, "lineage"),
        (comes_again_after_an_end_in_order, "repeats"),
        (is_in_a_micro_batch_that_is_done_again_without_it, "replay"),
        (is_lost_and_not_said, "unsaid"),
        (is_said_to_be_lost_and_there, "false alarm"),
        (is_waited_for_without_a_word, "silent"),
        (is_left_by_an_end_up_to_now, "lost"),
    ],
)
def test_each_check_finds_a_record_that(
    told: Told, record: Callable[[Told], None], check: str
) -> None:
    record(told)
    assert told.checks == {check}


@pytest.mark.parametrize(
    "entry",
    [
        lambda shard, number: TokenShard(shard.id, "after_sequence", number),
        lambda shard, number: TokenShard(shard.id, "latest"),
        lambda shard, number: TokenShard(
            shard.id, "trim_horizon", time=datetime.fromtimestamp(NOW + 5, UTC)
        ),
        lambda shard, number: TokenShard(shard.id, "trim_horizon", finished=True),
        lambda shard, number: TokenShard("child", "trim_horizon", parent=shard.id),
    ],
    ids=["a number", "latest", "a time", "finished", "left out"],
)
def test_a_checkpoint_ahead_of_the_delivery(told: Told, entry: object) -> None:
    [number] = told.write()
    assert callable(entry)
    told.save(entry(told.shard, number))
    assert "ahead" in told.checks
