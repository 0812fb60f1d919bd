"""When a refusal is the end, and when it is only trouble."""

import pytest

from tests.support.hand_clock import HandClock
from watcher.errors import CredentialsError, DeniedError, UnexpectedAnswerError
from watcher.streams.messages import ErrorKind, ReadFailed
from watcher.streams.persistent_errors import PersistentErrors, kind_of


def denied(failures: int = 1) -> ReadFailed:
    return ReadFailed("no permission", failures, ErrorKind.DENIED)


def odd(failures: int = 1) -> ReadFailed:
    return ReadFailed("<html>", failures, ErrorKind.UNEXPECTED)


def test_each_error_is_of_its_kind() -> None:
    errors = DeniedError("no"), CredentialsError("no"), UnexpectedAnswerError("no")
    kinds = [ErrorKind.DENIED, ErrorKind.CREDENTIALS, ErrorKind.UNEXPECTED]
    assert [kind_of(error) for error in errors] == kinds


def test_no_permission_later_is_the_end_after_a_minute_of_it(clock: HandClock) -> None:
    persistent_errors = PersistentErrors(clock)
    persistent_errors.on_answer()
    persistent_errors.on_error("a", denied(1))
    keep_denying(persistent_errors, clock, 59)
    clock.sleep(1)
    with pytest.raises(DeniedError):
        persistent_errors.on_error("a", denied(3))


def keep_denying(
    persistent_errors: PersistentErrors, clock: HandClock, seconds: int, shard: str = "a"
) -> None:
    for _ in range(seconds):
        clock.sleep(1)
        persistent_errors.on_error(shard, denied(2))


def test_a_minute_of_it_is_one_of_attempts_not_of_a_machine_that_stood_still(
    clock: HandClock,
) -> None:
    persistent_errors = PersistentErrors(clock, has_worked=True)
    persistent_errors.on_error("a", denied(1))
    keep_denying(persistent_errors, clock, 45)
    clock.sleep(1200)
    persistent_errors.on_error("a", denied(3))
    with pytest.raises(DeniedError):
        keep_denying(persistent_errors, clock, 5)


def test_a_minute_counts_anew_after_a_success_or_another_trouble(clock: HandClock) -> None:
    persistent_errors = PersistentErrors(clock, has_worked=True)
    for between in (denied(1), ReadFailed("500", 3), odd(3)):
        persistent_errors.on_error("a", denied(2))
        keep_denying(persistent_errors, clock, 49)
        persistent_errors.on_error("a", between)


def test_each_shard_has_its_own_minute(clock: HandClock) -> None:
    persistent_errors = PersistentErrors(clock, has_worked=True)
    persistent_errors.on_error("a", denied(1))
    keep_denying(persistent_errors, clock, 40)
    persistent_errors.on_error("b", denied(1))
    keep_denying(persistent_errors, clock, 40, "b")


def test_odd_answers_in_a_row_are_the_end_only_where_nothing_has_worked(clock: HandClock) -> None:
    persistent_errors = PersistentErrors(clock)
    persistent_errors.on_error("a", odd(1))
    persistent_errors.on_error("a", odd(2))
    with pytest.raises(UnexpectedAnswerError, match="<html>"):
        persistent_errors.on_error("a", odd(3))
    persistent_errors.on_answer()
    for failures in range(1, 100):
        persistent_errors.on_error("a", odd(failures))
        clock.sleep(10)


def test_one_odd_answer_behind_throttled_ones_is_not_the_end(clock: HandClock) -> None:
    persistent_errors = PersistentErrors(clock)
    for shard in "abcdefgh":
        persistent_errors.on_error(shard, ReadFailed("throttled", 1))
        persistent_errors.on_error(shard, ReadFailed("503", 2))
        persistent_errors.on_error(shard, odd(3))
    persistent_errors.on_error("a", odd(4))
    with pytest.raises(UnexpectedAnswerError, match="<html>"):
        persistent_errors.on_error("a", odd(5))


def test_refused_credentials_are_said_of_all_shards_at_once_and_again_the_next_time(
    clock: HandClock,
) -> None:
    persistent_errors = PersistentErrors(clock)
    said = []
    for failures in (4, 8):
        for shard in "abcdefgh":
            said.append(
                persistent_errors.subject(
                    shard, ReadFailed("expired", failures, ErrorKind.CREDENTIALS)
                )
            )
        clock.sleep(20)
    assert list(filter(None, said)) == ["All shards"] * 2
    clock.sleep(3600)
    assert (
        persistent_errors.subject("c", ReadFailed("expired", 4, ErrorKind.CREDENTIALS))
        == "All shards"
    )
