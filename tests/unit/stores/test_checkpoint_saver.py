"""When positions are saved."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.support.hand_clock import HandClock
from tests.support.play import Memory
from watcher.errors import LeaseLostError, UsageError, WatcherError
from watcher.stores.checkpoint_saver import CheckpointSaver
from watcher.streams.token import Token

TOKEN = Token("arn", [], [])


class Failing(Memory):
    fails = True

    def save(self, stored: Sequence[Token]) -> None:
        if self.fails:
            raise UsageError("can't use checkpoint c: No space left on device")
        super().save(stored)


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


def test_what_cannot_be_saved_is_said_at_the_beginning(clock: HandClock) -> None:
    with pytest.raises(UsageError):
        CheckpointSaver(Failing(), lambda: [TOKEN], clock).save_first()


def test_each_stream_that_begins_is_saved_at_once(clock: HandClock) -> None:
    store = Memory()
    keeper = CheckpointSaver(store, lambda: [TOKEN], clock)
    for _ in range(3):
        keeper.save_first()
    assert store.saves == 3


def test_of_many_that_begin_saving_takes_half_of_the_time_at_most(clock: HandClock) -> None:
    class Slow(Memory):
        def save(self, stored: Sequence[Token]) -> None:
            clock.sleep(1)
            super().save(stored)

    store = Slow()
    keeper = CheckpointSaver(store, lambda: [TOKEN], clock)
    for _ in range(40):
        clock.sleep(0.25)
        keeper.save_first()
    assert 9 <= store.saves <= 11


def test_it_saves_about_once_a_second_and_only_where_something_moved(clock: HandClock) -> None:
    store = Memory()
    keeper = CheckpointSaver(store, lambda: [TOKEN], clock)
    for _ in range(100):
        clock.sleep(0.1)
        keeper.save_if_due()
    assert store.saves == 0
    for _ in range(100):
        clock.sleep(0.1)
        keeper.mark_dirty()
        keeper.save_if_due()
    assert 9 <= store.saves <= 11


def test_while_all_is_idle_the_token_is_kept_young(clock: HandClock) -> None:
    store = Memory()
    keeper = CheckpointSaver(store, lambda: [TOKEN], clock)
    for _ in range(3600):
        clock.sleep(1)
        keeper.save_if_due()
    assert store.saves == 12


def test_before_something_that_may_take_long_it_saves_what_moved(clock: HandClock) -> None:
    store = Memory()
    keeper = CheckpointSaver(store, lambda: [TOKEN], clock)
    clock.sleep(0.5)
    keeper.save_before_waiting()
    assert store.saves == 0
    keeper.mark_dirty()
    keeper.save_before_waiting()
    keeper.mark_dirty()
    keeper.save_before_waiting()
    assert store.saves == 1, "not again at once"
    keeper.save_last()
    assert store.saves == 2


def test_a_trouble_is_said_once_and_is_an_error_only_if_it_lasts(
    clock: HandClock, caplog: pytest.LogCaptureFixture
) -> None:
    store = Failing()
    keeper = CheckpointSaver(store, lambda: [TOKEN], clock)
    for _ in range(3):
        clock.sleep(1)
        keeper.mark_dirty()
        keeper.save_if_due()
    assert len(caplog.messages) == 1
    with pytest.raises(WatcherError, match="the positions of this run are not saved"):
        keeper.raise_error()
    store.fails = False
    keeper.mark_dirty()
    keeper.save_last()
    keeper.raise_error()


def test_without_a_store_nothing_is_saved(clock: HandClock) -> None:
    keeper = CheckpointSaver(None, lambda: [TOKEN], clock)
    keeper.save_first()
    keeper.mark_dirty()
    keeper.save_last()
    keeper.raise_error()


def test_an_idle_watch_whose_lease_is_lost_ends(clock: HandClock) -> None:
    class Lost(Memory):
        is_lost = False

        def save(self, stored: Sequence[Token]) -> None:
            raise LeaseLostError("another has it")

    store = Lost()
    keeper = CheckpointSaver(store, lambda: [TOKEN], clock)
    keeper.save_if_due()
    store.is_lost = True
    with pytest.raises(LeaseLostError):
        keeper.save_if_due()
