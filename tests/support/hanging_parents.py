"""A stream whose shards have parents that no listing shows, and that are asked for in vain."""

from __future__ import annotations

from tests.simulator import Simulator
from watcher.aws import timing

COUNT = 40
SHARDS = COUNT + 2
PATIENT = timing.CallTiming(read_seconds=200, loop_read_seconds=200)
"""Ten at a time, each until it is given up, would then outlast any test's patience."""


def hang(sim: Simulator) -> set[str]:
    """What can be read all the same: the last child, whose parent is gone, and one without any.

    `sim` is to have SHARDS shards.
    """
    other, *parents = sim.open_shards
    for parent in parents:
        [child] = sim.rotate(parent)
        sim.drop_shard(parent)
        if parent != parents[-1]:
            sim.fail_next("GetShardIterator", "hang", times=1000, shard_id=parent)
    sim.bulk(20 * SHARDS)
    read = {each.sequence_number for each in sim.records if each.shard_id in (other, child)}
    assert len({each.shard_id for each in sim.records}) == SHARDS
    return read
