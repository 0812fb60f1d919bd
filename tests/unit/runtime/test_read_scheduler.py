"""A worker's shards: whose turn it is, and how many at once."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.hand_clock import HandClock
from tests.support.play import PlayedService
from tests.support.wire import body
from watcher.aws.counters import Counters
from watcher.aws.model import TrimHorizon
from watcher.runtime.protocol import ShardAssignment, ShardClosed
from watcher.runtime.worker import AssignedShard, ReadScheduler


class Shards:
    """Readers of shards on which nothing happens."""

    def __init__(self, count: int, poll_max: float = 1.0) -> None:
        self.clock = HandClock()
        self.readers = ReadScheduler(self.clock)
        service: Any = PlayedService(self.clock)
        service.get_records = lambda iterator, limit=None: body([])
        self.service = service
        self.all = []
        for number in range(count):
            service.add(str(number))
            work = ShardAssignment("", str(number), TrimHorizon(), None, poll_max)
            self.all.append(AssignedShard(work, service, Counters(), self.clock))
            self.readers.add(self.all[-1])

    def begin(self) -> list[AssignedShard]:
        """All that may be read now, at the same time."""
        begun = []
        while (reading := self.readers.next()) is not None:
            begun.append(reading)
        return begun

    def end(self, readings: list[AssignedShard]) -> None:
        for reading in readings:
            reading.read()
            self.readers.answered(reading)
            self.readers.done(reading)

    def idle(self, seconds: float) -> int:
        """Let time pass; how many reads there were."""
        reads, end = 0, self.clock.passed + seconds
        while self.clock.passed < end:
            self.end(begun := self.begin())
            reads += len(begun)
            if not begun:
                self.clock.sleep(min(max(self.readers.due_in, 0.001), end - self.clock.passed))
        return reads


def test_four_answers_are_waited_for_at_once_and_more_where_those_are_slow() -> None:
    shards = Shards(10)
    assert len(shards.begin()) == 4 and shards.readers.due_in > 0
    shards.clock.sleep(0.26)
    assert len(shards.begin()) == 4


def test_answers_that_wait_to_be_sent_stop_the_reading() -> None:
    shards = Shards(10)
    for reading in shards.begin():
        shards.readers.answered(reading)
    shards.clock.sleep(60)
    assert not shards.begin()


def test_an_idle_shard_is_read_every_second_for_a_minute_and_then_ever_less_often() -> None:
    shards = Shards(1, poll_max=60)
    shards.idle(10)
    assert 45 <= shards.idle(48) <= 49
    shards.idle(180)
    assert shards.idle(600) <= 11


def test_turns_of_idle_shards_come_together() -> None:
    shards = Shards(4)
    shards.idle(5)
    moments = set()
    for _ in range(40):
        if begun := shards.begin():
            moments.add(round(shards.clock.passed % 1.0, 3))
            shards.end(begun)
        else:
            shards.clock.sleep(max(shards.readers.due_in, 0.0001))
    assert len(moments) <= 2


@pytest.mark.parametrize("is_read", [False, True])
def test_a_shard_that_closes_is_read_on_without_pauses(is_read: bool) -> None:
    """A closed shard may have thousands of empty pages before its last records."""
    shards = Shards(2, poll_max=60)
    shards.idle(300)
    begun = shards.begin() if is_read else []
    shards.readers.obey(ShardClosed(*shards.all[0].shard_key))
    shards.end(begun)
    for _ in range(20):
        begun = shards.begin()
        assert shards.all[0] in begun
        shards.end(begun)
    assert not shards.all[1].reader.closed
