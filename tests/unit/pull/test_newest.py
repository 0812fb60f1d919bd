"""When a shard was last changed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.simulation.client import Credentials, SimulatedClient
from tests.simulator.faults import Faults
from tests.simulator.model import World
from tests.simulator.service import Service
from watcher.aws.client import CallRateLimiter
from watcher.pull.newest import newest_change

NOW = 1_790_000_000.0


class Table:
    """One shard of the simulator's, and a clock."""

    def __init__(self, **faults: object) -> None:
        self.now = NOW - 20 * 3600
        self.world = World(lambda: self.now, 1)
        self.table = self.world.add_table("orders")
        self.stream = self.table.enable(1, "KEYS_ONLY")
        self.service = Service(self.world, Faults(**faults))  # type: ignore[arg-type]
        self.client = SimulatedClient(
            self.service,
            Credentials(),
            wait=lambda seconds: None,
            read_seconds=3.0,
            limiter=CallRateLimiter(),
            granted=lambda shard, position: None,
            listed=lambda: None,
            silent=lambda seconds: None,
        )

    def write(self, age: float) -> None:
        self.now = NOW - age
        self.table.write("k", 1, 0, 5)

    def newest(self) -> timedelta | None:
        self.now = NOW
        now = datetime.fromtimestamp(NOW, UTC)
        (shard,) = self.stream.open_shards
        found = newest_change(self.client, self.stream.arn, shard.id, now)
        return None if found is None else now - found


@pytest.mark.parametrize("at_timestamp", [True, False])
@pytest.mark.parametrize("age", [3, 600, 5000, 60_000])
def test_it_is_found_whatever_its_age(age: int, at_timestamp: bool) -> None:
    table = Table(at_timestamp=at_timestamp)
    table.write(61_000)
    table.write(age)
    assert table.newest() == timedelta(seconds=age)


def test_a_shard_without_records_has_none() -> None:
    assert Table().newest() is None
