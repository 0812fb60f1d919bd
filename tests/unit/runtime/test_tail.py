"""The last changes of several streams, of which one can't be read."""

from __future__ import annotations

from datetime import datetime

import pytest

from tests.support.hand_clock import HandClock
from tests.support.play import ARN
from tests.unit.pull.test_merged_shards import Shards
from watcher.aws.model import Position
from watcher.errors import StreamError
from watcher.options import WatchOptions
from watcher.runtime.tail import Tail
from watcher.runtime.watched_stream import WatchedStream


class _FromTheFirst(Shards):
    def get_iterator(self, arn: str, shard_id: str, position: Position) -> tuple[str, datetime]:
        return f"{shard_id} 0", self.now


def test_one_that_is_refused_keeps_its_own_start_and_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = HandClock()
    services = [_FromTheFirst(clock, 1) for _ in range(2)]
    for _ in range(5):
        services[0].write("shard-0")
    services[1].errors = [StreamError("no permission")] * 4
    read, refused = (
        WatchedStream(arn, WatchOptions(), service=service, clock=clock)
        for arn, service in zip((ARN, ARN.replace("orders", "users")), services, strict=True)
    )
    tail = Tail(2, None, clock=clock)
    tail.begin([read, refused])
    assert tail.found == 2
    assert (read.is_resumed, refused.is_resumed) == (True, False)
    assert caplog.text.count("users: no permission; the other streams continue") == 1
    with pytest.raises(StreamError, match="no permission"):
        services[1].errors = [StreamError("no permission")]
        Tail(2, None, clock=clock).begin([refused])
