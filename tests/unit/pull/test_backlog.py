"""All that a stream holds, its shards read side by side."""

from __future__ import annotations

import json
import threading
import time
from datetime import datetime

import pytest

from tests.support.hand_clock import HandClock
from tests.support.play import ARN, PlayedService
from tests.support.wire import wire
from watcher.aws.model import Position, Shard
from watcher.errors import StreamError, TransientError
from watcher.pull.backlog import BacklogReader


class _ClosedShards(PlayedService):
    """Closed shards, whose iterators name the shard and the page."""

    def __init__(self, shards: int) -> None:
        super().__init__(HandClock())
        for number in range(shards):
            self.shards[f"shard-{number}"] = Shard(f"shard-{number}", None, "1", "9" * 25)

    def get_iterator(self, arn: str, shard_id: str, position: Position) -> tuple[str, datetime]:
        return f"{shard_id} 0", self.now


class _Dripping(_ClosedShards):
    """Shards of one record a page; a read of the first has no answer until it is released."""

    def __init__(self, shards: int, pages: int) -> None:
        super().__init__(shards)
        self.pages = pages
        self.released = threading.Event()

    def get_records(self, iterator: str, limit: int | None = None) -> bytes:
        shard_id, _, page = iterator.partition(" ")
        if shard_id == "shard-0":
            assert self.released.wait(60)
        following = int(page) + 1
        answer = {"Records": [wire(following)]}
        more = {"NextShardIterator": f"{shard_id} {following}"} if following < self.pages else {}
        return json.dumps(answer | more).encode()


def test_a_shard_that_drips_keeps_no_other_waiting() -> None:
    service = _Dripping(shards=4, pages=5)
    held = BacklogReader(ARN, service)
    order: list[str] = []
    for record in held.read():
        order.append(record.shard_id)
        if len(order) == 15:  # all of the others
            assert "shard-0" not in order
            service.released.set()
    assert order[15:] == ["shard-0"] * 5


class _Crowd(_ClosedShards):
    """Shards with some empty pages before their only record; notes the reads side by side."""

    def __init__(self, shards: int, empty: int) -> None:
        super().__init__(shards)
        self._empty = empty
        self._lock = threading.Lock()
        self._reading = 0
        self.most = dict.fromkeys((True, False), 0)

    def get_records(self, iterator: str, limit: int | None = None) -> bytes:
        shard_id, _, page = iterator.partition(" ")
        is_first = page == "0"
        with self._lock:
            self._reading += 1
            self.most[is_first] = max(self.most[is_first], self._reading)
        time.sleep(0.01)
        with self._lock:
            self._reading -= 1
        if int(page) == self._empty:
            return json.dumps({"Records": [wire(1)]}).encode()
        following = f"{shard_id} {int(page) + 1}"
        return json.dumps({"Records": [], "NextShardIterator": following}).encode()


@pytest.mark.parametrize(
    ("shards", "empty", "fewest", "most"),
    [
        pytest.param(40, 0, 2, 8, id="pages with records are few at a time: each takes memory"),
        pytest.param(60, 8, 9, 32, id="shards that give empty pages are many"),
    ],
)
def test_so_many_shards_are_read_side_by_side(
    shards: int, empty: int, fewest: int, most: int
) -> None:
    service = _Crowd(shards, empty)
    read = BacklogReader(ARN, service).read()
    assert sorted(record.shard_id for record in read) == sorted(service.shards)
    assert fewest <= service.most[not empty] <= most


def test_a_service_that_goes_away_ends_the_reading_after_a_minute() -> None:
    """`count`, `history`, `as-of` and `mirror --no-follow` ran for ever."""
    service = _Crowd(1, 0)
    service.shards["shard-0"] = Shard("shard-0", None, "1")
    read = BacklogReader(ARN, service, clock=service.clock).read()
    assert next(read).shard_id == "shard-0"

    def refuse(*_: object) -> bytes:
        raise TransientError("no way")

    service.get_records = service.get_iterator = service.list_shards = refuse  # type: ignore[assignment,method-assign]
    with pytest.raises(StreamError, match=r"nothing more .* no way; unread: the rest of 1 shard"):
        next(read)
    assert 60 <= service.clock.passed < 90
