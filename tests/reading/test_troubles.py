"""What is said of a service that keeps refusing."""

import pytest

from tests.hand_clock import HandClock
from watcher.reading.messages import Kind, Trouble
from watcher.reading.troubles import Troubles


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    lines = caplog.messages[:]
    caplog.clear()
    return lines


def test_each_shards_troubles_are_said_at_ever_longer_distances(
    caplog: pytest.LogCaptureFixture,
) -> None:
    troubles = Troubles(HandClock())
    for failures in range(1, 40):
        for shard in ("a", "b"):
            troubles.hear(shard, Trouble("no", failures), {})
    assert said(caplog) == [
        f"Shard {shard}: {failures} failures in a row: no"
        for failures in (4, 8, 16, 32)
        for shard in ("a", "b")
    ]


def test_refused_credentials_are_said_for_all_shards_at_once_and_again_the_next_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = HandClock()
    troubles = Troubles(clock)
    for failures in range(1, 10):
        for shard in "abcdefgh":
            troubles.hear(shard, Trouble("expired", failures, Kind.CREDENTIALS), {})
        clock.sleep(5)
    assert said(caplog) == [
        "All shards: 4 failures in a row: expired",
        "All shards: 8 failures in a row: expired",
    ]
    clock.sleep(3600)
    troubles.hear("c", Trouble("expired", 4, Kind.CREDENTIALS), {})
    assert said(caplog) == ["All shards: 4 failures in a row: expired"]
