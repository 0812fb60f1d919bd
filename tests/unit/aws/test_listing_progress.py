"""A listing that takes long is said, and one without an end is given up."""

from __future__ import annotations

import itertools
import logging

import pytest

from watcher.aws.listings import ListingProgress
from watcher.errors import TransientError

ARNS = (f"stream {number}" for number in itertools.count())
"""Of each stream is kept how many pages it had, and that it had a circle."""


@pytest.fixture(autouse=True)
def arn(caplog: pytest.LogCaptureFixture) -> str:
    caplog.set_level(logging.INFO, "watcher")
    return next(ARNS)


def take(arn: str, count: int, seconds: float = 0.25) -> None:
    """A listing of so many pages of a hundred shards, each of which takes so long."""
    listing = ListingProgress("shards", arn)
    for number in range(1, count + 1):
        key = str(number) if number < count else None
        assert listing.add_page(key, 100 * number, seconds) == (number == count)
    assert listing.count == count


def test_what_takes_seconds_is_not_said(arn: str, caplog: pytest.LogCaptureFixture) -> None:
    take(arn, 39)
    assert caplog.messages == []


def test_what_takes_long_is_said_after_ten_seconds_and_every_half_minute(
    arn: str, caplog: pytest.LogCaptureFixture
) -> None:
    take(arn, 200)
    assert caplog.messages == [
        "Still listing shards: 40 pages in 10 s (4,000 shards) so far",
        "Still listing shards: 160 pages in 40 s (16,000 shards) so far",
    ]


def test_a_large_stream_is_said_once_and_not_with_every_listing(
    arn: str, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        take(arn, 100)
    assert len(caplog.messages) == 1
    take(arn, 300)  # it was never like this
    assert caplog.messages[1:] == ["Still listing shards: 201 pages in 50 s (20,100 shards) so far"]


@pytest.mark.parametrize(("seconds", "most"), [(0.25, 1000), (5.0, 60)])
def test_what_does_not_end_is_given_up_and_not_begun_anew_at_once(
    arn: str, seconds: float, most: int
) -> None:
    listing = ListingProgress("shards", arn)
    for number in range(1, most):
        assert not listing.add_page(str(number), number, seconds)
    with pytest.raises(TransientError, match=f"does not end, after {most:,} pages in") as caught:
        listing.add_page("last", most, seconds)
    assert caught.value.unreachable


def test_a_circle_is_its_end_and_said_once(arn: str, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        listing = ListingProgress("streams", arn)
        assert [listing.add_page(key, 1, 0.1) for key in ("a", "b", "a")] == [False, False, True]
    (line,) = caplog.messages
    assert line.startswith("The listing of streams comes back to a page")
