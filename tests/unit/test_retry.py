"""Pauses after failures, and which of them are told."""

from watcher.retry import backoff, worth_logging


def test_each_pause_is_twice_the_one_before_up_to_the_longest() -> None:
    assert [backoff(count) for count in (1, 2, 3)] == [0.1, 0.2, 0.4]
    assert backoff(8) == 10.0 == backoff(10**6)
    assert backoff(2, first=1.0, most=5.0) == 2.0


def test_failures_are_told_at_ever_longer_distances() -> None:
    assert [count for count in range(1, 70) if worth_logging(count)] == [4, 8, 16, 32, 64]
    assert [count for count in range(1, 9) if worth_logging(count, unsaid=2)] == [2, 4, 8]
