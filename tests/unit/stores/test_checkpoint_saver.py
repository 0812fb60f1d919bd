"""When positions are saved."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.support.hand_clock import HandClock
from tests.support.play import Memory
from watcher.errors import LeaseLostError, UsageError, WatcherError
from watcher.stores.checkpoint_saver import CheckpointSaver
from watcher.stores.protocol import Store
from watcher.streams.checkpoint_format import Token

TOKEN = Token("arn", [], [])


def saver_of(store: Store, clock: HandClock, pending: Sequence[str] = ()) -> CheckpointSaver:
    return CheckpointSaver(
        store=store, tokens=lambda: [TOKEN], has_pending=lambda: bool(pending), clock=clock
    )


def test_of_many_that_begin_saving_takes_half_of_the_time_at_most(clock: HandClock) -> None:
    class Slow(Memory):
        def save(self, stored: Sequence[Token]) -> None:
            clock.sleep(1.0)
            super().save(stored)

    store = Slow()
    saver = saver_of(store, clock)
    for _ in range(40):
        clock.sleep(0.25)
        saver.save_first()
    assert 9 <= store.saves <= 11


def test_a_save_in_which_the_process_was_stopped_puts_off_no_other(clock: HandClock) -> None:
    class Stopped(Memory):
        def save(self, stored: Sequence[Token]) -> None:
            clock.sleep(0.0 if self.saves else 1200.0)
            super().save(stored)

    store = Stopped()
    saver = saver_of(store, clock)
    saver.save_now()
    for _ in range(4):
        saver.mark_dirty()
        clock.sleep(1.0)
        saver.save_if_due()
    assert store.saves == 5


def test_while_all_is_idle_the_token_is_kept_young(clock: HandClock) -> None:
    store = Memory()
    saver = saver_of(store, clock)
    for _ in range(3600):
        clock.sleep(1)
        saver.save_if_due()
    assert store.saves == 12


def test_before_something_that_may_take_long_it_saves_what_moved(clock: HandClock) -> None:
    store = Memory()
    saver = saver_of(store, clock)
    clock.sleep(0.5)
    saver.save_before_waiting()
    assert store.saves == 0
    saver.mark_dirty()
    saver.save_before_waiting()
    saver.mark_dirty()
    saver.save_before_waiting()
    assert store.saves == 1, "not again at once"
    saver.save_last()
    assert store.saves == 2


def test_a_trouble_is_said_once_and_is_an_error_only_if_it_lasts(
    clock: HandClock, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing(Memory):
        fails = True

        def save(self, stored: Sequence[Token]) -> None:
            if self.fails:
                raise UsageError("can't use checkpoint c: No space left on device")

    store = Failing()
    saver = saver_of(store, clock)
    with pytest.raises(UsageError):
        saver.save_first()
    for _ in range(3):
        clock.sleep(1)
        saver.mark_dirty()
        saver.save_if_due()
    assert len(caplog.messages) == 1
    with pytest.raises(WatcherError, match="the positions of this run are not saved"):
        saver.raise_error()
    store.fails = False
    saver.mark_dirty()
    saver.save_last()
    saver.raise_error()


def test_an_idle_watch_whose_lease_is_lost_ends(clock: HandClock) -> None:
    class Lost(Memory):
        is_lost = False

        def save(self, stored: Sequence[Token]) -> None:
            raise LeaseLostError("another has it")

    store = Lost()
    saver = saver_of(store, clock)
    saver.save_if_due()
    store.is_lost = True
    with pytest.raises(LeaseLostError):
        saver.save_if_due()


def test_while_records_wait_in_a_batch_it_saves_on_without_a_further_one(clock: HandClock) -> None:
    store, pending = Memory(), ["a record"]
    saver = saver_of(store, clock, pending)
    saver.mark_dirty()
    for _ in range(5):
        clock.sleep(1)
        saver.save_if_due()
    assert store.saves == 5
    pending.clear()
    for _ in range(5):
        clock.sleep(1)
        saver.save_if_due()
    assert store.saves == 6, "once more, as nothing holds the position back now"


def test_without_a_stream_nothing_is_saved_in_place_of_what_is_there(clock: HandClock) -> None:
    store, tokens = Memory(), [TOKEN]
    saver = CheckpointSaver(store=store, tokens=lambda: tokens, clock=clock)
    saver.save_now()
    kept = store.load()
    tokens.clear()
    saver.save_now()
    assert store.load() == kept == [TOKEN]
