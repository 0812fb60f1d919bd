"""Decides how far the next micro-batch goes, from what is buffered of each shard; no I/O."""

from __future__ import annotations

import heapq
import sys
from collections.abc import Mapping

from watcher.aws.model import AfterSequence
from watcher.spark.offsets import Offset, ShardOffset
from watcher.spark.read_ahead import BufferedPage, BufferedShard
from watcher.spark.timing import LIMITS, SourceLimits
from watcher.streams.lineage import Lineage, ShardStatus

Shards = Mapping[str, BufferedShard]


def end_offset(
    start: Offset,
    max_records: int | None,
    shards: Shards,
    lineage: Lineage,
    limits: SourceLimits = LIMITS,
) -> Offset | None:
    """Returns the end of a micro-batch from `start` on; None where it would be empty.

    A page that the limit cuts through is split where it stands.
    """
    moved: dict[str, ShardOffset] = {}
    for shard_id, pages in _admitted(shards, max_records, limits).items():
        shard, before = shards[shard_id], start.shards.get(shard_id)
        tracked = shard.tracked
        position = before.position if before else tracked.position
        upto = shard.deferred.upto if shard.deferred else pages[-1].upto if pages else None
        if upto is not None:
            position = AfterSequence(upto)
        finished = shard.has_ended and len(pages) == len(shard.pages)
        if upto is not None or (finished and not (before and before.finished)):
            moved[shard_id] = ShardOffset(
                position,
                tracked.parent,
                finished,
                not tracked.expected,
                first=(before and before.first) or shard.first,
            )
    return Offset(start.stream, _pruned(start.shards, moved, shards, lineage)) if moved else None


def _admitted(
    shards: Shards, max_records: int | None, limits: SourceLimits
) -> dict[str, list[BufferedPage]]:
    """Returns each free shard's pages in the micro-batch: oldest first, where not all fit in."""
    free = [shard for shard in shards.values() if _is_free(shard, shards)]
    admitted: dict[str, list[BufferedPage]] = {shard.id: [] for shard in free}
    left = {shard.id: iter(list(shard.pages)) for shard in free}
    room = dict.fromkeys(admitted, limits.shard_bytes)
    records, size = max_records or sys.maxsize, limits.batch_bytes
    heap: list[tuple[float, str, BufferedPage]] = []

    def push(shard_id: str) -> None:
        if room[shard_id] > 0 and (following := next(left[shard_id], None)):
            heapq.heappush(heap, (following.created, shard_id, following))

    for shard in free:
        push(shard.id)
    while heap and records > 0 and size > 0:
        _, shard_id, page = heapq.heappop(heap)
        if page.count > records:
            page = shards[shard_id].split(page, records)
        admitted[shard_id].append(page)
        records -= page.count
        size -= page.size
        room[shard_id] -= page.size
        push(shard_id)
    return admitted


def _is_free(shard: BufferedShard, shards: Shards) -> bool:
    """True once all of its parents is in a batch before: a child's records come after theirs."""
    parent = shard.tracked.parent
    above = shards.get(parent) if parent else None
    if above is None:
        return True
    if above.reader is None or not above.has_ended or above.pages:
        return False
    return _is_free(above, shards)


def _pruned(
    before: Mapping[str, ShardOffset],
    moved: Mapping[str, ShardOffset],
    shards: Shards,
    lineage: Lineage,
) -> dict[str, ShardOffset]:
    """Returns the whole offset, without finished shards that their children stand for."""
    whole = {**before, **moved}
    with_child = {reached.parent for reached in whole.values()}
    return {
        shard_id: reached
        for shard_id, reached in whole.items()
        if shard_id in moved
        or shard_id in shards
        or shard_id not in with_child
        or not (reached.finished or _was_never_there(shard_id, reached, lineage))
    }


def _was_never_there(shard_id: str, reached: ShardOffset, lineage: Lineage) -> bool:
    """True for a parent that was gone before the query: it is finished without a range."""
    tracked = lineage.shards.get(shard_id)
    return reached.unlisted and (tracked is None or tracked.status is ShardStatus.FINISHED)
