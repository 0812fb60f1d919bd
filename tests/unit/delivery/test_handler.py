"""What a handler need not say, and what the dispatcher makes of one that says it all."""

from __future__ import annotations

import math

import pytest

from tests.support.hand_clock import HandClock
from tests.support.wire import record
from watcher.aws.model import ShardKey
from watcher.delivery.dispatcher import Dispatcher
from watcher.delivery.failures import FailurePolicy
from watcher.delivery.handler import Failure, Handler
from watcher.records.record import Record

SHARD = ShardKey("", "shard-0")


def test_a_callable_settles_each_record_as_it_comes() -> None:
    seen: list[Record] = []
    observer = Handler("seen", seen.append)
    observer.handle(record(1))
    observer.page_end(SHARD)
    observer.tick()
    observer.drain()
    observer.close()
    assert seen == [record(1)]
    assert observer.first_pending(SHARD) is None
    assert observer.waiting() == {}


class Pairs(Handler):
    """Settles two records at a time; the first `failures` times it fails."""

    def __init__(self, failures: int) -> None:
        super().__init__("pairs", self.take)
        self.pair: list[Record] = []
        self.settled: list[list[str]] = []
        self.failures = failures

    def take(self, record: Record) -> None:
        self.pair.append(record)
        if len(self.pair) == 2:
            self.drain()

    def drain(self, shard_key: ShardKey | None = None) -> None:
        if self.failures:
            self.failures -= 1
            raise Failure(self.pair, ValueError("no"), retries=math.inf)
        if self.pair:
            self.settled.append([each.sequence_number[-1] for each in self.pair])
        self.pair = []

    def first_pending(self, shard_key: ShardKey) -> str | None:
        return self.pair[0].sequence_number if self.pair else None

    def waiting(self) -> dict[ShardKey, int]:
        return {SHARD: len(self.pair)} if self.pair else {}

    def go_on(self, failure: Failure, *, given_up: bool) -> None:
        self.drain()


@pytest.mark.parametrize("failures", [0, 1, 3])
def test_one_that_settles_several_at_once_is_tried_again_as_often_as_it_says(failures: int) -> None:
    pairs, clock, pending = Pairs(failures), HandClock(), list[str | None]()
    made = Dispatcher(
        [pairs],
        FailurePolicy(),
        clock=clock,
        before_retry=lambda: pending.append(made.first_pending(SHARD)),
    )
    for number in (1, 2, 3):
        made.deliver(record(number))
    assert pairs.settled == [["1", "2"]]
    assert made.retries.counts["pairs"] == failures
    assert pending == [record(1).sequence_number] * failures
    assert made.pending_count == 1 and made.processed({"": 3}) == {("", "pairs"): 2}
    assert made.first_pending(SHARD) == record(3).sequence_number
    made.drain(SHARD)
    assert pairs.settled == [["1", "2"], ["3"]]
    assert made.first_pending(SHARD) is None
