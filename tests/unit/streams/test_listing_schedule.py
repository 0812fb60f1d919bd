"""When a stream's shards are listed again."""

from __future__ import annotations

import pytest

from tests.support.hand_clock import HandClock
from watcher.streams.listing_schedule import ListingSchedule


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def listing(clock: HandClock) -> ListingSchedule:
    return ListingSchedule(clock)


def seconds_until_due(
    listing: ListingSchedule, clock: HandClock, *, is_of_use: bool = True
) -> float:
    """After so many it is due."""
    began = clock.monotonic()
    while not listing.should_list(lambda: is_of_use):
        clock.sleep(0.25)
    return clock.monotonic() - began


def test_the_first_is_due_at_once(listing: ListingSchedule, clock: HandClock) -> None:
    assert seconds_until_due(listing, clock, is_of_use=False) == 0


def test_a_large_stream_and_one_of_many_are_listed_more_seldom(
    listing: ListingSchedule, clock: HandClock
) -> None:
    listing.on_listing(1, asked_at=clock.monotonic())
    assert seconds_until_due(listing, clock) == 5.25
    listing.on_listing(20, asked_at=clock.monotonic())
    assert seconds_until_due(listing, clock) == 9
    listing.share(3)
    listing.on_listing(20, asked_at=clock.monotonic())
    assert seconds_until_due(listing, clock) == 17


def test_one_that_is_of_no_use_comes_once_a_minute(
    listing: ListingSchedule, clock: HandClock
) -> None:
    listing.on_listing(20, asked_at=clock.monotonic())
    assert seconds_until_due(listing, clock, is_of_use=False) == 63  # the seventh period's end


def test_of_what_use_it_is_is_asked_once_a_period(
    listing: ListingSchedule, clock: HandClock
) -> None:
    asked: list[float] = []

    def is_of_use() -> bool:
        asked.append(clock.monotonic())
        return False

    listing.on_listing(20, asked_at=clock.monotonic())
    for _ in range(100):
        listing.should_list(is_of_use)
        clock.sleep(0.25)
    assert len(asked) == 2


def test_one_that_is_waited_for_comes_whatever_its_use(
    listing: ListingSchedule, clock: HandClock
) -> None:
    listing.on_listing(20, asked_at=clock.monotonic())
    listing.want_in(2)
    listing.want_in(3)
    assert seconds_until_due(listing, clock, is_of_use=False) == 2
    listing.on_listing(20, asked_at=clock.monotonic())
    assert seconds_until_due(listing, clock) == 9, "it has come"


def test_after_failures_it_is_tried_again_ever_later(
    listing: ListingSchedule, clock: HandClock
) -> None:
    pauses = []
    for _ in range(5):
        listing.on_failure()
        pauses.append(seconds_until_due(listing, clock, is_of_use=False))
    assert pauses == [1, 2, 4, 5, 5]
