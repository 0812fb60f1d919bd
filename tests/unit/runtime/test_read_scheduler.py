"""A worker's shards: whose turn it is, and how many at once."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from tests.support.hand_clock import HandClock
from tests.support.play import PlayedService
from tests.support.times import NOON
from tests.support.wire import body
from tests.unit.streams.test_read_rate import Slots
from watcher.aws.counters import Counters
from watcher.aws.model import AtTime, Latest, Position, TrimHorizon
from watcher.errors import TransientError
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


def test_few_reads_are_throttled_where_hardly_one_a_second_is_allowed() -> None:
    """What is waited for after a throttled read does not end with the pauses of idle shards."""
    shards = Shards(1)
    slots, answers = Slots(0.95), {True: 0, False: 0}

    def records(iterator: str, limit: int | None = None) -> bytes:
        answers[is_free := slots.is_free(shards.clock.passed)] += 1
        if not is_free:
            raise TransientError("Rate of requests exceeds the allowed throughput", throttled=True)
        return body([])

    shards.service.get_records = records
    shards.idle(60)
    answers.update({True: 0, False: 0})
    shards.idle(600)
    assert answers[False] < 0.05 * sum(answers.values())
    assert answers[True] > 0.8 * 600


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


def test_latest_is_the_beginning_also_of_a_shard_that_cannot_be_begun_at_once() -> None:
    clock, asked = HandClock(), list[Position]()
    service: Any = PlayedService(clock)
    service.add("a")
    service.get_records = lambda iterator, limit=None: body([])

    def iterator(arn: str, shard_id: str, position: Position) -> tuple[str, datetime]:
        asked.append(position)
        if len(asked) < 3:
            raise TransientError("500")
        return "iterator", service.now

    service.get_iterator = iterator
    work = ShardAssignment("", "a", Latest(), None, 1.0, latest=NOON)
    reading = AssignedShard(work, service, Counters(), clock)
    for _ in range(3):
        reading.read()
        clock.sleep(60)
    assert asked == [Latest(), AtTime(NOON), AtTime(NOON)]
