"""The readers of a stream's shards in one process."""

from __future__ import annotations

import json
from datetime import datetime

from tests.support.hand_clock import HandClock
from tests.support.play import ARN, PlayedService
from tests.support.wire import FIRST, wire
from watcher.aws.model import AfterSequence, Latest, Position, TrimHorizon
from watcher.call_pool import CallPool
from watcher.pull.shard_pool import PullOptions, ShardPool
from watcher.streams.losses import Losses


class _Growing(PlayedService):
    """A shard of which two records more come with each page."""

    def __init__(self, clock: HandClock) -> None:
        super().__init__(clock)
        self.add("shard-0")
        self.closed = False

    def get_iterator(self, arn: str, shard_id: str, position: Position) -> tuple[str, datetime]:
        if isinstance(position, Latest):
            return "5", self.now
        after = isinstance(position, AfterSequence)
        return str(int(position.sequence_number) - FIRST + 1) if after else "0", self.now  # type: ignore[union-attr]

    def get_records(self, iterator: str, limit: int | None = None) -> bytes:
        first = int(iterator)
        found = [wire(number) for number in (first, first + 1)]
        return json.dumps({"Records": found, "NextShardIterator": str(first + 2)}).encode()


def test_a_shard_that_closes_while_its_last_page_is_read_goes_on_behind_that_page() -> None:
    clock = HandClock()
    service = _Growing(clock)
    pool = ShardPool(
        ARN,
        TrimHorizon(),
        service=service,
        losses=Losses(clock=clock),
        calls=CallPool(threads=False),
        clock=clock,
        options=PullOptions(up_to_now=True),
    )
    pool.refresh()
    (shard,) = pool.shards.values()
    numbers = list[int]()

    def read() -> None:
        for _, pages in pool.collect([shard], 0.0):
            for page in pages:
                records = page.records()
                numbers.extend(int(each.dynamodb.SequenceNumber) - FIRST for each in records)

    clock.sleep(3)
    pool.start_reads([shard])
    read()
    pool.start_reads([shard])
    read()
    pool.start_reads([shard])  # ends before the sixth record, which came after the beginning …
    service.add("child", "shard-0")
    clock.sleep(10)
    pool.refresh()  # … and a listing shows that the shard is closed, before that is taken in
    read()
    assert shard.is_refused and not shard.has_ended
    clock.sleep(1)
    pool.start_reads([shard])
    read()
    assert numbers == sorted(set(numbers))
