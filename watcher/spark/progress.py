"""The figures of a query's progress: what is unread behind the newest micro-batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import TypeAlias

from watcher.aws.model import AfterSequence, AtTime, opened_at
from watcher.spark.buffered_shard import BufferedPage, BufferedShard
from watcher.spark.deferred_range import DeferredRange
from watcher.spark.offsets import ShardOffset
from watcher.streams.lineage import RETENTION, TrackedShard

Report: TypeAlias = dict[str, int]
"""Figures of a query's progress, by their names."""


def backlog(
    shards: Iterable[BufferedShard],
    unstarted: Iterable[TrackedShard],
    planned: Mapping[str, ShardOffset],
    now: float,
) -> Report:
    """Returns the figures of what comes after the newest micro-batch, whose end is `planned`.

    `unstarted` are shards that wait for their turn.
    """
    shards = list(shards)
    waiting = [
        page for shard in shards for page in shard.pages if _is_left(page, planned.get(shard.id))
    ]
    deferred = [
        each.deferred
        for each in shards
        if each.deferred and _is_left(each.deferred, planned.get(each.id))
    ]
    times = [each.created for each in waiting] + [each.created for each in deferred]
    finished = {name for name, each in planned.items() if each.finished}
    unread = [
        shard.tracked
        for shard in shards
        if not shard.attempted and not shard.pages and shard.id not in finished
    ]
    times += _opened([*unread, *unstarted], now)
    return {
        "buffered_bytes": sum(each.size for each in waiting),
        "buffered_records": sum(each.count for each in waiting),
        "lag_seconds": max(0, round(now - min(times))) if times else 0,
    }


def _is_left(held: BufferedPage | DeferredRange, planned: ShardOffset | None) -> bool:
    return (
        planned is None
        or not isinstance(planned.position, AfterSequence)
        or int(held.upto) > int(planned.position.sequence_number)
    )


def _opened(unread: Iterable[TrackedShard], now: float) -> Iterator[float]:
    """Yields when the first record may have been made of shards that were not read yet."""
    kept = now - RETENTION.total_seconds()
    for each in unread:
        if (since := _oldest_unread(each)) is not None:
            yield max(kept, since.timestamp())


def _oldest_unread(shard: TrackedShard) -> datetime | None:
    """Returns a time before which no record of a shard is unread, where one is known."""
    if isinstance(shard.position, AtTime):
        return shard.position.time
    return opened_at(shard.id) or shard.since
