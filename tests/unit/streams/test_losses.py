"""Which losses count, and how they are said."""

from datetime import timedelta

import pytest

from tests.support.hand_clock import HandClock
from tests.support.times import NOON
from watcher.aws.model import AfterSequence, AtTime, Latest, Listing, Position, TrimHorizon
from watcher.errors import DataLossError
from watcher.streams.lineage import TrackedShard
from watcher.streams.losses import Losses
from watcher.streams.messages import Loss

LOSS = Loss("a", "sequence number 7", "trimmed")


def begun(clock: HandClock, *, is_error: bool = False, remedy: str = "") -> Losses:
    made = Losses(is_error=is_error, remedy=remedy, clock=clock)
    made.start("arn", TrimHorizon())
    return made


def test_as_an_error_it_comes_before_the_position_moves(clock: HandClock) -> None:
    losses = begun(clock, is_error=True, remedy="; try that")
    shard = TrackedShard("a", None, AfterSequence("7"))
    with pytest.raises(DataLossError, match=r"from sequence number 7.*; try that$"):
        losses.on_loss(shard, LOSS)
    assert shard.position == AfterSequence("7"), "for the next one to find it again"


def test_what_was_gone_as_the_reading_began_is_no_loss(clock: HandClock) -> None:
    losses = begun(clock)
    losses.on_loss(TrackedShard("a", None, TrimHorizon()), LOSS)
    assert losses.lines == []
    clock.sleep(61)
    losses.on_loss(TrackedShard("b", None, TrimHorizon()), LOSS)
    assert len(losses.lines) == 1


def test_what_leaves_while_the_machine_sleeps_in_its_first_minute_is_one(clock: HandClock) -> None:
    losses = begun(clock)
    clock.sleep(10)
    clock.slept = 25 * 3600.0
    losses.on_loss(TrackedShard("a", None, TrimHorizon()), LOSS)
    assert len(losses.lines) == 1


def test_of_a_parent_that_only_its_child_named_nothing_is_lost(clock: HandClock) -> None:
    losses = begun(clock)
    losses.on_loss(TrackedShard("a", None, AfterSequence("7"), expected=False), LOSS)
    assert losses.lines == []


@pytest.mark.parametrize(
    ("start", "enabled", "said"),
    [
        (AtTime(NOON - timedelta(hours=30)), None, "retention is 24 hours"),
        (AtTime(NOON - timedelta(hours=2)), timedelta(hours=1), "its stream was enabled then"),
        (AtTime(NOON - timedelta(hours=24, seconds=5)), timedelta(hours=40), ""),
        (AtTime(NOON - timedelta(hours=2)), None, ""),
        (TrimHorizon(), timedelta(hours=1), ""),
        (Latest(), timedelta(hours=1), ""),
    ],
)
def test_a_start_before_all_that_the_stream_holds_is_said(
    caplog: pytest.LogCaptureFixture, start: Position, enabled: timedelta | None, said: str
) -> None:
    created = None if enabled is None else NOON - enabled
    losses = Losses(clock=HandClock())
    losses.start("arn", start)
    losses.warn_if_starting_late(Listing("arn", "orders", "ENABLED", "", [], 1, NOON, created))
    assert losses.lines == []
    assert bool(said) == bool(caplog.messages)
    assert all(f"({said}), and none" in line for line in caplog.messages)
