"""All that a stream holds, its shards read side by side."""

from __future__ import annotations

import json
import threading
from datetime import datetime

from tests.support.hand_clock import HandClock
from tests.support.play import ARN, PlayedService
from tests.support.wire import wire
from watcher.aws.model import Position, Shard
from watcher.pull.backlog import BacklogReader


class _Closed(PlayedService):
    """Shards of one record a page; a read of the first has no answer until it is released."""

    def __init__(self, shards: int, pages: int) -> None:
        super().__init__(HandClock())
        self.pages = pages
        self.released = threading.Event()
        for number in range(shards):
            self.shards[f"shard-{number}"] = Shard(f"shard-{number}", None, "1", "9" * 25)

    def get_iterator(self, arn: str, shard_id: str, position: Position) -> tuple[str, datetime]:
        return f"{shard_id} 0", self.now

    def get_records(self, iterator: str, limit: int | None = None) -> bytes:
        shard_id, _, page = iterator.partition(" ")
        if shard_id == "shard-0":
            assert self.released.wait(60)
        following = int(page) + 1
        answer = {"Records": [wire(following)]}
        more = {"NextShardIterator": f"{shard_id} {following}"} if following < self.pages else {}
        return json.dumps(answer | more).encode()


def test_a_shard_that_drips_keeps_no_other_waiting() -> None:
    service = _Closed(shards=4, pages=5)
    held = BacklogReader(ARN, service, clients=lambda count: [service] * count)
    order: list[str] = []
    for record in held.read():
        order.append(record.shard_id)
        if len(order) == 15:  # all of the others
            assert "shard-0" not in order
            service.released.set()
    assert order[15:] == ["shard-0"] * 5
