"""No more than so many calls in any second, in whatever order and by whomever they are made."""

import pytest

from tests.support.hand_clock import HandClock
from watcher.aws.client import CallRateLimiter


@pytest.mark.parametrize(("at_start", "most"), [(0, 4), (200, 9)])
def test_no_second_has_more_of_them_however_they_come(at_start: int, most: int) -> None:
    clock = HandClock()
    limited = CallRateLimiter(clock, at_start=at_start)
    begun = []
    for step in range(200):
        clock.sleep((step * 7 % 11) / 50)
        begun.append(clock.passed + limited.turn())
    assert begun == sorted(begun)
    behind = [later - earlier for earlier, later in zip(begun, begun[most:], strict=False)]
    assert 1.0 < min(behind) < 1.06


def test_a_throttled_start_leaves_calls_to_others() -> None:
    clock = HandClock()
    limited = CallRateLimiter(clock)
    for _ in range(9):
        assert limited.turn() == 0
    limited.on_throttled()
    turns = [limited.turn() for _ in range(8)]
    assert turns[0] > 1 and turns[4] - turns[0] > 1
