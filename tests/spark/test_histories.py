"""Any history of a stream, its troubles and crashes of the driver: each record once, in order.

A seed is a history.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

import pytest

pytest.importorskip("pyspark")

from tests.spark.played import EXPIRED, PlayedQuery, PlayedStream, numbers, step
from tests.support.hand_clock import HandClock
from watcher.aws.model import Listing, Position, Shard
from watcher.errors import CredentialsError, ExpiredIteratorError, StreamError, TransientError
from watcher.spark import offsets
from watcher.spark.offsets import Offset

T = TypeVar("T")

TROUBLES = (TransientError("500"), TransientError("slow down", throttled=True))


class TroubledStream(PlayedStream):
    """Listings lag, calls fail, iterators expire, pages are short or empty."""

    def __init__(self, clock: HandClock, rng: random.Random) -> None:
        super().__init__(clock)
        self.is_well = False
        self.rng = rng
        self._shown: dict[str, float] = {}

    def open(self, parent: str | None = None) -> None:
        name = f"s{len(self.records_of)}"
        self.write(name, [], parent)
        if parent is not None:
            self.hidden.add(name)
            self._shown[name] = self._clock.monotonic() + self.rng.choice((0, 0, 0.5, 2, 4.5))

    @property
    def open_shards(self) -> list[str]:
        return [name for name in self.records_of if name not in self.closed]

    def change(self) -> None:
        name = self.rng.choice(self.open_shards)
        if self.rng.random() < 0.8 or len(self.records_of) >= 30:
            first = sum(map(len, self.records_of.values()))
            self.write(name, range(first, first + self.rng.randint(1, 20)))
        else:
            for _ in range(self.rng.choice((1, 2))):
                self.open(name)

    def list_shards(self, arn: str) -> Listing:
        self._suffer()
        return super().list_shards(arn)

    def list_children(self, arn: str, shard_id: str) -> list[Shard]:
        self._suffer()
        return super().list_children(arn, shard_id)

    def get_iterator(self, arn: str, shard_id: str, position: Position) -> tuple[str, datetime]:
        self._suffer()
        return super().get_iterator(arn, shard_id, position)

    def get_records(self, iterator: str, limit: int | None = None) -> bytes:
        self._suffer()
        self.page_size = self.rng.choice((1, 5, 10))
        if not self.is_well and self.rng.random() < 0.05:
            raise ExpiredIteratorError("too old")
        if not self.is_well and self.rng.random() < 0.2:
            return json.dumps({"Records": [], "NextShardIterator": iterator}).encode()
        return super().get_records(iterator, limit)

    def _suffer(self) -> None:
        self._clock.sleep(0.01)
        now = self._clock.monotonic()
        self.hidden = {name for name in self.hidden if self._shown[name] > now}
        if not self.is_well and self.rng.random() < 0.15:
            raise self.rng.choice((*TROUBLES, CredentialsError(EXPIRED)))


class History:
    """A stream, and a query whose driver dies between any two things that Spark asks of it."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        random.seed(seed)  # the readers' jitter
        self.clock = HandClock()
        self.stream = TroubledStream(self.clock, self.rng)
        for _ in range(self.rng.choice((1, 2, 3))):
            self.stream.open()
        self.once = False
        self.done: list[dict[str, list[int]]] = []
        """What each micro-batch has brought, by shard."""
        more = self.rng.choice(({}, {}, {"maxRecordsPerTrigger": "7"}))
        self.query = self.tried(lambda: PlayedQuery(self.stream, self.clock, **more))
        self.offset = self.query.offset

    def tried(self, call: Callable[[], T]) -> T:
        """What goes wrong at its beginning ends a query: it is started again."""
        while True:
            try:
                return call()
            except (StreamError, TransientError):
                self.clock.sleep(1)

    def restart(self) -> None:
        self.query.start()
        if self.once:
            self.tried(self.query.planner.stop_at_now)

    def maybe_restart(self, chance: float) -> bool:
        crashes = not self.stream.is_well and self.rng.random() < chance
        if crashes:
            self.restart()
        return crashes

    def read_ahead(self) -> None:
        """Time passes, in which Spark has other things to do."""
        for _ in range(self.rng.choice((0, 0, 3, 20))):
            self.clock.sleep(0.3)
            step(self.query.ahead, self.stream)

    def batch(self) -> bool:
        limit = self.query.options.max_records
        end = self.tried(lambda: self.query.planner.latest(self.offset, limit))
        if end is self.offset:
            return False
        self.maybe_restart(0.15)
        rows = self.rows(end)
        while self.maybe_restart(0.1):  # before the commit: it is done again
            assert self.rows(end) == rows
        self.done.append(rows)
        stored = offsets.from_json(json.loads(json.dumps(offsets.to_json(end))))
        assert stored is not None
        self.offset = stored
        self.maybe_restart(0.1)
        self.read_ahead()
        return True

    def rows(self, end: Offset) -> dict[str, list[int]]:
        rows = {}
        for between in offsets.ranges(self.offset, end):
            held = self.query.planner.pages(between)
            pages = self.query.read(between) if held is None else [each.page() for each in held]
            rows[between.shard_id] = numbers(pages)
        return rows

    def play(self) -> None:
        changes = self.rng.randint(5, 60)
        while changes:
            if self.rng.random() < 0.5:
                self.stream.change()
                changes -= 1
                self.read_ahead()
            else:
                self.batch()
        self.stream.is_well = True
        self.once = self.rng.random() < 0.5
        if self.once:
            self.clock.sleep(5)
            self.restart()
        deadline = self.clock.monotonic() + 300
        whole = sum(map(len, self.stream.records_of.values()))
        while (self.batch() or not self.once) and self.count < whole:
            assert self.clock.monotonic() < deadline, "it waits without an end"

    @property
    def count(self) -> int:
        return sum(len(records) for rows in self.done for records in rows.values())

    def check(self) -> None:
        for name, written in self.stream.records_of.items():
            assert [each for rows in self.done for each in rows.get(name, ())] == written, name
            parent = self.stream.parents.get(name)
            if parent and (mine := self.batches_of(name)) and (above := self.batches_of(parent)):
                assert max(above) <= min(mine), f"{name} before its parent"
                together = [*self.done[min(mine)]]
                if parent in together:
                    assert together.index(parent) < together.index(name), f"{name} before it"
        assert len(self.offset.shards) <= len(self.stream.open_shards) + 12

    def batches_of(self, name: str) -> list[int]:
        return [index for index, rows in enumerate(self.done) if rows.get(name)]


@pytest.mark.parametrize("seed", range(150))
def test_each_record_comes_once_and_after_those_of_its_shard_s_parent(seed: int) -> None:
    history = History(seed)
    history.play()
    history.check()
