"""When a refusal is the end, and when it is only trouble."""

import pytest

from tests.support.hand_clock import HandClock
from watcher.errors import DeniedError, OddAnswerError
from watcher.streams.messages import ErrorKind, Notice, Retrying
from watcher.streams.refusals import Refusals


def denied(failures: int = 1) -> Retrying:
    return Retrying("no permission", failures, ErrorKind.DENIED)


def odd(failures: int = 1) -> Retrying:
    return Retrying("<html>", failures, ErrorKind.ODD)


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


def test_no_permission_at_the_beginning_is_the_end(clock: HandClock) -> None:
    with pytest.raises(DeniedError, match="no permission"):
        Refusals(clock).on_error("a", denied())


def test_no_permission_later_is_the_end_after_a_minute_of_it(clock: HandClock) -> None:
    refusals = Refusals(clock)
    refusals.on_answer()
    refusals.on_error("a", denied(1))
    keep_denying(refusals, clock, 59)
    clock.sleep(1)
    with pytest.raises(DeniedError):
        refusals.on_error("a", denied(3))


def keep_denying(refusals: Refusals, clock: HandClock, seconds: int, shard: str = "a") -> None:
    for _ in range(seconds):
        clock.sleep(1)
        refusals.on_error(shard, denied(2))


def test_a_minute_of_it_is_one_of_attempts_not_of_a_machine_that_stood_still(
    clock: HandClock,
) -> None:
    refusals = Refusals(clock, has_worked=True)
    refusals.on_error("a", denied(1))
    keep_denying(refusals, clock, 45)
    clock.sleep(1200)
    refusals.on_error("a", denied(3))
    with pytest.raises(DeniedError):
        keep_denying(refusals, clock, 5)


def test_a_minute_counts_anew_after_a_success_or_another_trouble(clock: HandClock) -> None:
    refusals = Refusals(clock, has_worked=True)
    for between in (denied(1), Retrying("500", 3), odd(3)):
        refusals.on_error("a", denied(2))
        keep_denying(refusals, clock, 49)
        refusals.on_error("a", between)


def test_each_shard_has_its_own_minute(clock: HandClock) -> None:
    refusals = Refusals(clock, has_worked=True)
    refusals.on_error("a", denied(1))
    keep_denying(refusals, clock, 40)
    refusals.on_error("b", denied(1))
    keep_denying(refusals, clock, 40, "b")


def test_odd_answers_in_a_row_are_the_end_only_where_nothing_has_worked(clock: HandClock) -> None:
    refusals = Refusals(clock)
    refusals.on_error("a", odd(1))
    refusals.on_error("a", odd(2))
    with pytest.raises(OddAnswerError, match="<html>"):
        refusals.on_error("a", odd(3))
    refusals.on_answer()
    for failures in range(1, 100):
        refusals.on_error("a", odd(failures))
        clock.sleep(10)


def test_passing_trouble_is_never_the_end(clock: HandClock) -> None:
    refusals = Refusals(clock)
    for failures in range(1, 100):
        refusals.on_error("a", Retrying("500", failures))
        clock.sleep(10)


def test_a_shards_own_trouble_is_said_of_it(clock: HandClock) -> None:
    refusals = Refusals(clock)
    for kind in set(ErrorKind) - {ErrorKind.CREDENTIALS}:
        for shard in "aba":
            assert refusals.subject(shard, Retrying("no", 4, kind)) == f"Shard {shard}"
    assert refusals.subject("a", Notice("odd")) == "Shard a"


def test_refused_credentials_are_said_of_all_shards_at_once_and_again_the_next_time(
    clock: HandClock,
) -> None:
    refusals = Refusals(clock)
    said = []
    for failures in (4, 8):
        for shard in "abcdefgh":
            said.append(
                refusals.subject(shard, Retrying("expired", failures, ErrorKind.CREDENTIALS))
            )
        clock.sleep(20)
    assert list(filter(None, said)) == ["All shards"] * 2
    clock.sleep(3600)
    assert refusals.subject("c", Retrying("expired", 4, ErrorKind.CREDENTIALS)) == "All shards"


def test_how_long_reads_are_refused_leaves_out_that_the_machine_stood_still(
    clock: HandClock,
) -> None:
    refusals = Refusals(clock, has_worked=True)
    assert refusals.seconds() < 0
    refusals.on_error("a", denied(1))
    keep_denying(refusals, clock, 20)
    clock.sleep(3600)
    assert refusals.seconds() == 30
    refusals.on_error("a", denied(2))
    assert refusals.seconds() == 30
    clock.sleep(5)
    assert refusals.seconds() == 35
