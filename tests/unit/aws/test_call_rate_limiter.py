"""No more than so many calls in any second, in whatever order and by whomever they are made."""

import threading

from tests.support.hand_clock import HandClock
from watcher.aws.client import CallRateLimiter, call_limiter_for


def test_as_many_as_are_allowed_go_at_once_and_the_others_in_their_turn() -> None:
    clock = HandClock()
    limited = CallRateLimiter(clock, calls=4, seconds=1.0)
    begun = []
    for _ in range(10):
        begun.append(clock.passed + limited.turn())
    assert begun == [0.0] * 4 + [1.0] * 4 + [2.0] * 2


def test_no_second_has_more_of_them_however_they_come() -> None:
    clock = HandClock()
    limited = CallRateLimiter(clock, calls=4, seconds=1.0)
    begun = []
    for step in range(200):
        clock.sleep((step * 7 % 11) / 20)
        begun.append(clock.passed + limited.turn())
    assert begun == sorted(begun)
    assert all(later - earlier > 0.999 for earlier, later in zip(begun, begun[4:], strict=False))


def test_who_calls_seldom_never_waits() -> None:
    clock = HandClock()
    limited = CallRateLimiter(clock, calls=4, seconds=1.0)
    for _ in range(50):
        assert limited.turn() == 0.0
        clock.sleep(0.25)


def test_threads_share_one() -> None:
    limited = CallRateLimiter(HandClock(), calls=4, seconds=1.0)
    turns: list[float] = []
    threads = [threading.Thread(target=lambda: turns.append(limited.turn())) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(turns) == [float(each // 4) for each in range(16)]


def test_a_program_has_one_for_an_endpoint() -> None:
    assert call_limiter_for("https://a") is call_limiter_for("https://a")
    assert call_limiter_for("https://a") is not call_limiter_for("https://b")
