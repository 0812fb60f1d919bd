"""The lease: whose turn it is, by nobody's wall clock."""

from __future__ import annotations

import signal
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.support.hand_clock import HandClock
from watcher.aws.lease_storage import LeaseRecord
from watcher.errors import CheckpointError, DeniedError, LeaseLostError, TransientError
from watcher.stores.lease import LEASE_SECONDS, Lease
from watcher.streams.checkpoint_format import Token, encode_all


class Item:
    """The table's item, for everybody; `trouble` is what calls end with."""

    name = "dynamodb://leases/orders"

    def __init__(self) -> None:
        self.there: LeaseRecord | None = None
        self.trouble: CheckpointError | None = None
        self.write_trouble: Exception | None = None
        self.answers_get_lost = False
        self.is_prepared = False

    def prepare(self) -> None:
        self.is_prepared = True

    def close(self) -> None:
        """Nothing is open."""

    def get(self) -> LeaseRecord | None:
        if self.trouble:
            raise self.trouble
        return self.there

    def replace(self, record: LeaseRecord, seen: LeaseRecord | None) -> bool:
        if self.write_trouble:
            raise CheckpointError("no write", answered=True) from self.write_trouble
        if self.trouble:
            raise self.trouble
        now = self.there and (self.there.holder, self.there.counter)
        if now != (seen and (seen.holder, seen.counter)):
            return False
        self.there = record
        if self.answers_get_lost:
            raise CheckpointError("no answer")
        return True


@pytest.fixture
def item() -> Any:
    return Item()


def never() -> bool:
    return False


def after(clock: HandClock, seconds: float) -> Callable[[], bool]:
    until = clock.passed + seconds
    return lambda: clock.passed >= until


def held(item: Any, clock: HandClock, holder: str = "one:1:a") -> Lease:
    lease = Lease(item, holder, clock)
    assert lease.stand_by(never)
    return lease


def test_who_stands_by_waits_for_a_holder_that_writes_and_takes_over_from_one_that_does_not(
    item: Any, clock: HandClock
) -> None:
    first = held(item, clock)
    first.save([Token("arn", [], [])])
    second = Lease(item, "two:2:b", clock)

    def writes() -> bool:
        first.renew()
        return clock.passed > 600

    assert not second.stand_by(writes)
    died = clock.passed
    assert second.stand_by(never)
    assert LEASE_SECONDS < clock.passed - died < LEASE_SECONDS + 2
    assert [token.stream_arn for token in second.load()] == ["arn"]


def test_one_that_was_paused_delivers_and_saves_nothing_more(item: Any, clock: HandClock) -> None:
    first = held(item, clock)
    second = Lease(item, "two:2:b", clock)
    assert second.stand_by(never)  # in virtual time: the first one stands still
    with pytest.raises(LeaseLostError, match="two:2 has it now"):
        first.raise_unless_held()
    with pytest.raises(LeaseLostError):
        first.write(b"old")
    assert first.renew() == 0.0
    second.raise_unless_held()
    assert item.there.token == b""


def test_one_that_was_paused_for_long_goes_on_where_nobody_else_was_there(
    item: Any, clock: HandClock
) -> None:
    lease = held(item, clock)
    clock.passed += 3600
    lease.raise_unless_held()
    assert item.there.counter == 2


def test_a_table_in_trouble_for_ten_minutes_holds_up_nothing_and_nobody_takes_over(
    item: Any, clock: HandClock
) -> None:
    lease = held(item, clock)
    other = Lease(item, "two:2:b", clock)
    assert not other.stand_by(after(clock, 3))
    trouble = CheckpointError("ThrottlingException", answered=True)
    began = clock.passed + 2

    def time_passes() -> bool:
        item.trouble = trouble if began < clock.passed < began + 600 else None
        lease.renew()
        now = clock.passed
        lease.raise_unless_held()
        assert clock.passed == now, "delivery waits for nothing"
        return clock.passed > began + 660

    assert not other.stand_by(time_passes)
    lease.write(b"later")


def test_one_that_gets_no_answer_delivers_nothing_once_its_lease_has_run_out(
    item: Any, clock: HandClock, caplog: pytest.LogCaptureFixture
) -> None:
    lease = held(item, clock)
    item.trouble = CheckpointError("can't be reached")
    for _ in range(5):
        clock.sleep(1)
        lease.renew()
        lease.raise_unless_held()
    clock.sleep(LEASE_SECONDS)
    began = clock.passed

    def sleep(seconds: float) -> None:
        clock.passed += seconds
        item.trouble = item.trouble if clock.passed < began + 30 else None

    clock.sleep = sleep  # type: ignore[method-assign]
    lease.raise_unless_held()
    assert clock.passed - began >= 30
    assert [line for line in caplog.messages if "delivery waits" in line]


def test_one_that_was_paused_does_not_deliver_because_the_table_is_in_trouble(
    item: Any, clock: HandClock
) -> None:
    lease = Lease(item, "one:1:a", clock)
    assert lease.stand_by(lambda: clock.passed > 60)
    clock.passed += 3600
    item.trouble = CheckpointError("ThrottlingException", answered=True)
    with pytest.raises(LeaseLostError, match="its store doesn't answer"):
        lease.raise_unless_held()


def test_an_answer_that_gets_lost_loses_no_lease(item: Any, clock: HandClock) -> None:
    lease = held(item, clock)
    item.answers_get_lost = True
    with pytest.raises(CheckpointError):
        lease.write(b"1")
    item.answers_get_lost = False
    lease.write(b"2")
    assert item.there.token == b"2"


def test_what_is_given_back_is_taken_at_once(item: Any, clock: HandClock) -> None:
    held(item, clock).close()
    began = clock.passed
    held(item, clock, "two:2:b")
    assert clock.passed == began


def test_who_takes_over_what_somebody_has_removed_warns_that_it_has_no_positions(
    item: Any, clock: HandClock, caplog: pytest.LogCaptureFixture
) -> None:
    held(item, clock)

    def removes_then_stops() -> bool:
        if clock.passed > 3.0:
            item.there = None
        return False

    assert Lease(item, "two:2:b", clock).stand_by(removes_then_stops)
    text = "The positions in dynamodb://leases/orders were removed: this watch begins without them"
    assert text in caplog.messages


def test_who_may_not_read_or_write_is_told_so_at_once_and_does_not_stand_by(
    item: Any, clock: HandClock
) -> None:
    lease = Lease(item, "one:1:a", clock)
    item.trouble = CheckpointError("no permission", answered=True)
    for use in (lease.peek, partial(lease.stand_by, never)):
        with pytest.raises(CheckpointError, match="no permission"):
            use()
    item.trouble, item.write_trouble = None, DeniedError("no permission")
    with pytest.raises(CheckpointError, match="no write"):
        lease.stand_by(never)
    item.write_trouble = TransientError("throttled")
    assert not Lease(item, "one:1:a", clock).stand_by(after(clock, 60.0))


TEN_MINUTES = 600.0


def test_one_that_may_not_take_over_any_more_names_what_it_lacks_and_says_it_seldom(
    item: Any, clock: HandClock, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = held(item, clock), Lease(item, "two:2:b", clock)

    def is_ending() -> bool:
        if clock.passed < 60.0:
            first.renew()
        else:  # it has died
            item.write_trouble = DeniedError("PutItem")
        return clock.passed > TEN_MINUTES

    assert not second.stand_by(is_ending)
    assert second.trouble == "no write"
    assert caplog.messages.count("no write; standing by, trying again") == 2
    item.write_trouble = None
    assert second.stand_by(never)
    assert second.trouble == ""


@pytest.mark.parametrize("trouble", [CheckpointError("no", answered=True), CheckpointError("lost")])
def test_one_that_cant_see_whose_turn_it_is_says_why_and_seldom(
    trouble: CheckpointError, item: Any, clock: HandClock, caplog: pytest.LogCaptureFixture
) -> None:
    first, told = held(item, clock), set[str]()
    second = Lease(item, "two:2:b", clock)

    def is_ending() -> bool:
        flickers = clock.passed % 30 > 3  # an answer in between
        item.trouble = trouble if 30 < clock.passed < TEN_MINUTES and flickers else None
        if item.trouble is None:
            first.renew()
        told.add(second.trouble)
        return clock.passed > TEN_MINUTES + 30

    assert not second.stand_by(is_ending)
    assert told == {"", str(trouble)} and second.trouble == ""
    assert caplog.messages.count(f"{trouble}; standing by, trying again") == 2


def test_what_is_stored_is_seen_before_the_lease_is_taken(item: Any, clock: HandClock) -> None:
    store = Lease(item, "two:2:b", clock)
    assert store.peek() == [] and item.is_prepared
    held(item, clock).write(encode_all([Token("arn", [], [])]))
    assert [token.stream_arn for token in store.peek()] == ["arn"]


def test_a_store_tells_of_a_lease_that_has_run_out_or_is_lost(item: Any, clock: HandClock) -> None:
    lease = held(item, clock)
    assert (lease.trouble, lease.in_doubt, lease.is_lost) == ("", False, False)
    item.trouble = CheckpointError("no answer")
    clock.passed += LEASE_SECONDS
    lease.renew()
    assert lease.in_doubt and lease.trouble == "no answer", "also where nothing is delivered"
    item.trouble = None
    assert Lease(item, "two:2:b", clock).stand_by(never)
    assert lease.renew() == 0.0
    assert lease.is_lost


def test_signals_interrupt_a_handler_and_not_the_renewals(
    item: Any, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two signals at once went to this thread, and a hanging handler kept the watch for ever."""
    blocked: set[int] = set()

    def renew() -> float:
        blocked.update(signal.pthread_sigmask(signal.SIG_BLOCK, []))
        return 0.0

    lease = Lease(item, "a", clock, renews=True)
    monkeypatch.setattr(lease, "renew", renew)
    assert lease.stand_by(never)
    lease.close()
    assert {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM} <= blocked
