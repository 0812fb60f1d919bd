"""When a stream's shards are listed again, and for how long a finished shard's child is sought."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.support.hand_clock import HandClock
from tests.support.times import NOON
from watcher.streams.listing import ListingSchedule, is_young


@pytest.fixture
def listing(clock: HandClock) -> ListingSchedule:
    return ListingSchedule(clock)


def seconds_until_due(listing: ListingSchedule, clock: HandClock) -> float:
    """After so many it is due."""
    began = clock.monotonic()
    while listing.due_in > 0:
        clock.sleep(0.25)
    return clock.monotonic() - began


def test_a_large_stream_and_one_of_many_are_listed_more_seldom(
    listing: ListingSchedule, clock: HandClock
) -> None:
    assert seconds_until_due(listing, clock) == 0, "the first"
    listing.on_listing(1, asked_at=clock.monotonic())
    assert seconds_until_due(listing, clock) == 5.25
    listing.on_listing(20, asked_at=clock.monotonic())
    assert seconds_until_due(listing, clock) == 9
    listing.stream_count = 3
    listing.on_listing(20, asked_at=clock.monotonic())
    assert seconds_until_due(listing, clock) == 17


def test_one_that_is_waited_for_comes_sooner(listing: ListingSchedule, clock: HandClock) -> None:
    listing.on_listing(20, asked_at=clock.monotonic())
    listing.want_in(2)
    listing.want_in(3)
    assert seconds_until_due(listing, clock) == 2
    listing.on_listing(20, asked_at=clock.monotonic())
    assert seconds_until_due(listing, clock) == 9, "it has come"


def test_after_failures_it_is_tried_again_ever_later(
    listing: ListingSchedule, clock: HandClock
) -> None:
    pauses = []
    for _ in range(5):
        listing.on_failure()
        pauses.append(seconds_until_due(listing, clock))
    assert pauses == [1, 2, 4, 5, 5]


def test_a_sibling_of_a_young_shard_may_not_be_listed_yet() -> None:
    name = f"shardId-{int(NOON.timestamp() * 1000):020d}-0"
    assert is_young(name, NOON + timedelta(seconds=4))
    assert not is_young(name, NOON + timedelta(seconds=5))
