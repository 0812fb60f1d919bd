"""Streams that come to match while a watch goes on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from tests.support.hand_clock import HandClock
from tests.support.play import PlayedService
from tests.unit.aws.test_wanted_streams import row
from watcher.aws.discovery import WantedStreams
from watcher.aws.model import StreamName
from watcher.errors import TransientError
from watcher.options import WatchOptions
from watcher.runtime.stream_discovery import StreamDiscovery
from watcher.runtime.watched_stream import WatchedStream


class Region:
    """What there is, two streams a page."""

    def __init__(self) -> None:
        self.tables = ["shop-a", "orders", "shop-b"]
        self.tagged: dict[str, Mapping[str, str]] = {}
        self.pages = 0
        self.asked: list[str] = []
        self.fails = False

    def stream_pages(self) -> Iterator[list[StreamName]]:
        for first in range(0, len(self.tables), 2):
            self.pages += 1
            if self.fails:
                raise TransientError("throttled", throttled=True)
            yield list(map(row, self.tables[first : first + 2]))

    def tags(self, table_arn: str) -> Mapping[str, str]:
        self.asked.append(table_arn.rpartition("/")[2])
        return self.tagged.get(self.asked[-1], {})


@pytest.fixture
def region() -> Region:
    return Region()


def newcomers(region: Region, clock: HandClock, *texts: str, **more: list[str]) -> StreamDiscovery:
    service = PlayedService(clock)

    def follow(arn: str) -> WatchedStream:
        return WatchedStream(arn, WatchOptions(), service=service, clock=clock)

    return StreamDiscovery(WantedStreams.parse(texts, **more), region, follow, clock)  # type: ignore[arg-type]


def found(looking: StreamDiscovery, clock: HandClock, seconds: float) -> list[str]:
    names = []
    for _ in range(round(seconds / 0.5)):
        clock.sleep(0.5)
        names += [stream.table for stream in looking.find()]
    return names


def test_the_region_is_listed_twice_a_minute_one_page_a_second(region: Region) -> None:
    clock = HandClock()
    looking = newcomers(region, clock, "shop-*")
    assert [each.table for each in looking.list_all()] == ["shop-a", "shop-b"]
    region.pages = 0
    assert found(looking, clock, 29) == [] and region.pages == 0
    region.tables.append("shop-c")
    assert found(looking, clock, 5) == ["shop-a", "shop-b", "shop-c"]
    assert region.pages == 2
    found(looking, clock, 70)
    assert region.pages == 6


def test_a_trouble_in_the_listing_is_a_listing_less(region: Region) -> None:
    clock = HandClock()
    looking = newcomers(region, clock, "shop-*")
    region.fails = True
    assert found(looking, clock, 60) == []
    region.fails = False
    assert found(looking, clock, 40)[:2] == ["shop-a", "shop-b"]


def test_a_tables_tags_are_asked_for_once_and_now_and_then_again(region: Region) -> None:
    clock = HandClock()
    looking = newcomers(region, clock, tags=["env=prod"])
    region.tagged["shop-a"] = {"env": "prod"}
    assert [each.table for each in looking.list_all()] == ["shop-a"]
    assert sorted(region.asked) == ["orders", "shop-a", "shop-b"]
    region.tagged["shop-b"] = {"env": "prod"}
    assert set(found(looking, clock, 80)) == {"shop-a", "shop-b"}
