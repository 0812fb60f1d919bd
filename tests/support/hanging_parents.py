"""A stream whose shards have parents that no listing shows, and that are asked for in vain."""

from __future__ import annotations

import pytest

from tests.simulator import Simulator
from watcher.aws import deadline

COUNT = 40
SHARDS = COUNT + 2
READ_SECONDS = 200
"""Ten at a time, each until it is given up, would then outlast any test's patience."""


def give_up_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have each call wait so long for an answer."""
    monkeypatch.setattr(deadline, "READ_SECONDS", READ_SECONDS)
    monkeypatch.setattr(deadline, "LOOP_READ_SECONDS", READ_SECONDS)


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
