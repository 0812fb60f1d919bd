"""What executors read, over a played stream."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

import logging

from tests.spark.played import EXPIRED, PlayedQuery, PlayedStream, number
from tests.support.hand_clock import HandClock
from watcher.aws.model import AfterSequence, TrimHorizon
from watcher.errors import CredentialsError, TransientError
from watcher.spark.offsets import Range


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def stream(clock: HandClock) -> PlayedStream:
    return PlayedStream(clock)


def test_expired_credentials_do_not_end_a_task(stream: PlayedStream, clock: HandClock) -> None:
    stream.write("a", range(10))
    query = PlayedQuery(stream, clock)
    query.run(1)
    ((start, _),) = query.batches
    stream.read_errors = [CredentialsError(EXPIRED) for _ in range(3)]

    again = query.read(Range("a", start.shards["a"].position, number(9)))

    assert sum(page.count for page in again) == 10
    assert stream.renewed == 3


def test_a_task_gives_up_after_minutes_of_trouble(stream: PlayedStream, clock: HandClock) -> None:
    stream.write("a", range(10))
    query = PlayedQuery(stream, clock)
    stream.read_errors = [CredentialsError(EXPIRED) for _ in range(1000)]

    with pytest.raises(
        TransientError, match=r"shard a from its trim .* can't be read: AWS refused"
    ):
        query.read(Range("a", query.offset.shards["a"].position, number(9)))
    assert 300 < clock.passed < 330


def test_a_range_of_which_nothing_is_left_ends(
    stream: PlayedStream, clock: HandClock, caplog: pytest.LogCaptureFixture
) -> None:
    """On an open shard the records after it go on for ever."""
    stream.write("a", range(100))
    query = PlayedQuery(stream, clock, failOnDataLoss="false")
    stream.trimmed = 29
    start = AfterSequence(number(4))

    with caplog.at_level(logging.WARNING, "watcher"):
        assert query.read(Range("a", start, number(9))) == []

    assert "nothing is left of it" in caplog.text
    assert clock.passed < 60


def test_a_range_of_which_nothing_is_left_ends_on_an_idle_shard(
    stream: PlayedStream, clock: HandClock, caplog: pytest.LogCaptureFixture
) -> None:
    stream.write("a", range(10))
    query = PlayedQuery(stream, clock, failOnDataLoss="false")
    stream.trimmed = 10
    for start in (AfterSequence(number(4)), TrimHorizon()):
        assert query.read(Range("a", start, number(9))) == []
        assert "nothing is left of it" in caplog.text
        caplog.clear()
    assert clock.passed < 60


def test_a_page_is_cut_at_the_end_of_a_range(stream: PlayedStream, clock: HandClock) -> None:
    stream.write("a", range(100))
    query = PlayedQuery(stream, clock)

    (page,) = query.read(Range("a", AfterSequence(number(4)), number(9)))

    assert (page.count, page.last_sequence_number) == (5, number(9))
