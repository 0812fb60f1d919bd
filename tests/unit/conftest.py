"""What unit tests share."""

import pytest

from tests.support.hand_clock import HandClock


@pytest.fixture
def clock() -> HandClock:
    return HandClock()
