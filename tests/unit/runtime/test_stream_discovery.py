"""Streams that come to match while a watch goes on."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.support.hand_clock import HandClock
from tests.support.play import PlayedService
from tests.unit.aws.test_wanted_streams import row
from watcher.aws.discovery import WantedStreams
from watcher.aws.model import StreamName
from watcher.call_pool import CallPool
from watcher.errors import DeniedError, TransientError
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
        self.denied: set[str] = set()
        self.throttled = 0
        """How many of the next calls for tags are throttled."""

    def stream_pages(self) -> Iterator[list[StreamName]]:
        for first in range(0, len(self.tables), 2):
            self.pages += 1
            if self.fails:
                raise TransientError("throttled", throttled=True)
            yield list(map(row, self.tables[first : first + 2]))

    def tags(self, table_arn: str) -> Mapping[str, str]:
        self.asked.append(table_arn.rpartition("/")[2])
        if self.throttled:
            self.throttled -= 1
            raise TransientError("throttled", throttled=True)
        if self.asked[-1] in self.denied:
            raise DeniedError("not allowed: dynamodb:ListTagsOfResource")
        return self.tagged.get(self.asked[-1], {})


@pytest.fixture
def region() -> Region:
    return Region()


def newcomers(
    region: Any, clock: HandClock, *texts: str, calls: CallPool | None = None, **more: list[str]
) -> StreamDiscovery:
    service = PlayedService(clock)

    def follow(arn: str) -> WatchedStream:
        return WatchedStream(arn, WatchOptions(), service=service, clock=clock)

    wanted = WantedStreams.parse(texts, **more)  # type: ignore[arg-type]
    return StreamDiscovery(wanted, region, follow, clock, calls=calls or CallPool(threads=False))


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


def test_a_directory_that_hangs_keeps_no_loop_waiting(region: Region) -> None:
    clock, answer = HandClock(), threading.Event()
    listed = region.stream_pages

    def hanging() -> Iterator[list[StreamName]]:
        answer.wait(60)
        return listed()

    region.stream_pages = hanging  # type: ignore[method-assign]
    calls = CallPool(most=1)
    looking = newcomers(region, clock, "shop-*", calls=calls)
    clock.sleep(30)
    assert looking.find() == []
    answer.set()
    calls.close()
    assert [stream.table for stream in looking.find()] == ["shop-a", "shop-b"]


def test_searches_that_fail_are_reported_and_repeated(
    region: Region, caplog: pytest.LogCaptureFixture
) -> None:
    clock = HandClock()
    looking = newcomers(region, clock, "shop-*")
    region.fails = True
    assert found(looking, clock, 95) == []
    assert caplog.messages == ["Can't list the streams to find new ones, trying again: throttled"]
    assert clock.monotonic() - looking.failing_since > 60
    region.fails = False
    assert found(looking, clock, 40)[:2] == ["shop-a", "shop-b"]
    assert looking.failing_since == math.inf


def test_a_table_that_refuses_its_tags_hides_no_other(
    region: Region, caplog: pytest.LogCaptureFixture
) -> None:
    clock = HandClock()
    region.denied = {"orders"}
    region.tagged["shop-b"] = {"env": "prod"}
    looking = newcomers(region, clock, tags=["env=prod"])
    assert [each.table for each in looking.list_all()] == ["shop-b"]
    assert set(found(looking, clock, 80)) == {"shop-b"}
    (line,) = caplog.messages
    assert "orders is left out, as its tags may not be listed" in line
    region.denied = {*region.tables}
    with pytest.raises(DeniedError):
        newcomers(region, HandClock(), tags=["env=prod"]).list_all()


def test_the_tags_of_many_tables_are_listed_as_fast_as_an_account_may(region: Region) -> None:
    clock = HandClock()
    region.tables = [f"shop-{number}" for number in range(1000)]
    region.throttled = 3
    newcomers(region, clock, tags=["env=prod"]).list_all()
    assert 99 <= clock.passed < 110
