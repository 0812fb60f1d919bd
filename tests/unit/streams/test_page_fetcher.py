"""A shard's reads, and those that are sent ahead of their turn."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.simulator import Simulator
from tests.support.blocking_reader import BlockingReader
from tests.support.eventually import eventually
from tests.support.hand_clock import HandClock
from watcher.aws.config import AwsConfig
from watcher.aws.connect import for_worker
from watcher.aws.model import TrimHorizon
from watcher.streams import read_rate
from watcher.streams.messages import Message, Page
from watcher.streams.read_rate import PageFetcher


@pytest.fixture
def reader(simulator: Simulator, monkeypatch: pytest.MonkeyPatch) -> BlockingReader:
    """Of a shard with two full pages, and half a one."""
    simulator.set_faults(max_records=2)
    simulator.write("a", 5)
    monkeypatch.setattr(read_rate, "FULL_BYTES", 700)
    arn = simulator.stream_arn
    streams = for_worker(AwsConfig("us-east-1", endpoint_url=simulator.endpoint), arn)
    return BlockingReader(streams, arn, simulator.shards[0].id, TrimHorizon())


def counts(messages: list[Message]) -> list[int]:
    return [message.count for message in messages if isinstance(message, Page)]


def test_behind_a_full_page_the_next_is_asked_for_before_its_turn(
    simulator: Simulator, reader: BlockingReader
) -> None:
    def asked(calls: int) -> bool:
        return simulator.calls["GetRecords"] == calls

    for count, calls in ((2, 2), (2, 3), (1, 3), (0, 4)):
        assert sum(counts(reader.read())) == count
        eventually(partial(asked, calls))


def test_where_others_read_too_nothing_is_asked_for_ahead(
    simulator: Simulator, reader: BlockingReader
) -> None:
    simulator.fail_next("GetRecords", "ThrottlingException")
    reader.read()
    assert (counts(reader.read()), simulator.calls["GetRecords"]) == ([2], 2)


class Noted:
    """A service that notes what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def get_records(self, iterator: str, limit: int | None = None) -> bytes:
        self.asked.append(iterator)
        return iterator.encode()

    def prefetch_records(self, iterator: str) -> Callable[[], bytes]:
        return partial(lambda body: body, self.get_records(iterator) + b" ahead")


def test_an_empty_answer_that_came_ahead_long_ago_is_no_word_of_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(read_rate, "FULL_BYTES", 10)
    service, clock = Noted(), HandClock()
    streams: Any = service
    made = PageFetcher(clock)
    for seconds, body in ((0.05, b"two ahead"), (1.0, b"two")):
        made.prefetch(b'{"NextShardIterator":"two","Records":[]}', streams)
        clock.sleep(seconds)
        assert made.fetch("two", streams) == body
    assert service.asked == ["two"] * 3
