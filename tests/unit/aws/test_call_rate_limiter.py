"""No more than so many calls in any second, in whatever order and by whomever they are made."""

from tests.support.hand_clock import HandClock
from watcher.aws.client import CallRateLimiter


def test_no_second_has_more_of_them_however_they_come() -> None:
    clock = HandClock()
    limited = CallRateLimiter(clock, calls=4, seconds=1.0)
    begun = []
    for step in range(200):
        clock.sleep((step * 7 % 11) / 20)
        begun.append(clock.passed + limited.turn())
    assert begun == sorted(begun)
    assert all(later - earlier > 0.999 for earlier, later in zip(begun, begun[4:], strict=False))
