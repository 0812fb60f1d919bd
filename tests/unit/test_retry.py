"""Pauses after failures, calls that are tried again, and which failures are told."""

import pytest

from watcher.retry import Backoff, retry, worth_logging


def test_each_pause_is_twice_the_one_before_up_to_the_longest() -> None:
    assert [Backoff().after(count) for count in (1, 2, 3)] == [0.1, 0.2, 0.4]
    assert Backoff().after(8) == 10.0 == Backoff().after(10**6)
    assert Backoff(first_seconds=1.0, longest_seconds=5.0).after(2) == 2.0


def test_chance_takes_off_a_part_of_a_pause() -> None:
    backoff = Backoff(first_seconds=1.0, longest_seconds=4.0, jitter=0.5)
    assert backoff.after(9, lambda: 0.0) == 4.0
    assert backoff.after(9, lambda: 1.0) == 2.0
    assert all(0.5 <= backoff.after(1) <= 1.0 for _ in range(20))


class Call:
    """Raises these errors, one a call, and answers then."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)

    def __call__(self) -> str:
        if self.errors:
            raise self.errors.pop(0)
        return "answer"


def is_key_error(error: Exception) -> bool:
    return isinstance(error, KeyError)


def test_a_call_is_tried_again_while_its_error_may_pass() -> None:
    slept: list[float] = []
    call, pauses = Call(KeyError(1), KeyError(2)), iter([1, 2, 3])
    assert retry(call, pauses=pauses, may_pass=is_key_error, sleep=slept.append) == "answer"
    assert slept == [1, 2]
    assert list(pauses) == [3], "a turn that is not needed is left to others"


def test_the_last_error_is_raised_and_one_that_may_not_pass_at_once() -> None:
    slept: list[float] = []
    call = Call(KeyError(1), KeyError(2), KeyError(3))
    with pytest.raises(KeyError, match="3"):
        retry(call, pauses=[1, 2], may_pass=is_key_error, sleep=slept.append)
    with pytest.raises(OSError, match="4"):
        retry(Call(OSError(4)), pauses=[9], may_pass=is_key_error, sleep=slept.append)
    assert slept == [1, 2]


def test_failures_are_told_at_ever_longer_distances() -> None:
    assert [count for count in range(1, 70) if worth_logging(count)] == [4, 8, 16, 32, 64]
    assert [count for count in range(1, 9) if worth_logging(count, from_failure=2)] == [2, 4, 8]
