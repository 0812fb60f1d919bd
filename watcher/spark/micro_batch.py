"""Decides how far the next micro-batch goes, from the shards' buffered pages; without I/O."""

from __future__ import annotations

import bisect
import heapq
import itertools
import math
import sys
from collections.abc import Mapping
from typing import Final

import msgspec

from watcher.aws.model import AfterSequence
from watcher.spark.buffered_shard import BufferedPage, BufferedShard
from watcher.spark.offsets import Offset, ShardOffset
from watcher.streams.lineage import Lineage, ShardStatus

Shards = Mapping[str, BufferedShard]
_MIB: Final = 1024 * 1024


class SourceLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The packed pages of a micro-batch, in bytes."""

    shard: int = 16 * _MIB
    """Of a shard; Spark sends up to 128 MB with a task."""
    batch: int = 64 * _MIB
    """Of all shards."""


LIMITS: Final = SourceLimits()


def end_offset(
    start: Offset,
    max_records: int | None,
    shards: Shards,
    lineage: Lineage,
    *,
    limits: SourceLimits = LIMITS,
    until: float = math.inf,
) -> Offset | None:
    """Returns the end of a micro-batch from `start` on; None if it would be empty.

    It has no record that was created after `until`, unless executors read it. A limit may split a
    page.
    """
    admission = _Admission(shards, limits, max_records or sys.maxsize, until)
    moved: dict[str, ShardOffset] = {}
    for shard_id in admission.run():
        shard, before = shards[shard_id], start.shards.get(shard_id)
        tracked, pages = shard.tracked, admission.pages(shard)
        position = before.position if before else tracked.position
        # Spark stores the start too: only one that is not a record's needs the first record.
        first = None if isinstance(position, AfterSequence) else shard.first
        upto = pages[-1].upto if pages else shard.deferred.upto if shard.deferred else None
        if upto is not None:
            position = AfterSequence(upto)
        finished = shard.has_ended and len(pages) == len(shard.pages)
        if upto is not None or (finished and not (before and before.finished)):
            moved[shard_id] = ShardOffset(
                position,
                tracked.parent,
                finished,
                not tracked.expected,
                first=first,
            )
    if not moved:
        return None
    return Offset(
        start.stream, _pruned(start.shards, moved, shards, lineage), created=start.created
    )


def full_at(shards: Shards, limits: SourceLimits, until: float) -> float:
    """Returns the time at which a micro-batch without a limit is full; infinite if all fits."""
    admission = _Admission(shards, limits, sys.maxsize, until)
    admission.run()
    return admission.full_at


class _Taken(msgspec.Struct):
    """The range of a shard that a micro-batch takes."""

    pages: int = 0
    """The number of whole pages, …"""
    records: int = 0
    """… and the number of records of the next page."""
    size: int = 0


class _Admission:
    """Chooses a micro-batch's records: the oldest first, and a parent's before its child's.

    Once the batch is full, or a shard has its share, the batch ends at that time for all shards.
    """

    def __init__(
        self,
        shards: Shards,
        limits: SourceLimits,
        records: int,
        until: float,
    ) -> None:
        self.full_at = math.inf
        """The time of the first record for which there was no room."""
        self._shards = shards
        self._limits = limits
        self._until = until
        self._taken: dict[str, _Taken] = {}
        self._heap: list[tuple[float, str]] = []
        self._records = records
        self._size = limits.batch
        self._children: dict[str, list[BufferedShard]] = {}
        for shard in shards.values():
            if shard.tracked.parent is not None:
                self._children.setdefault(shard.tracked.parent, []).append(shard)
        waiting = [page.count for shard in shards.values() for page in shard.pages]
        sizes = [shard.bytes for shard in shards.values()]
        largest = max(sizes, default=0)
        self._all_fit = (
            sum(waiting) <= records and sum(sizes) <= limits.batch and largest <= limits.shard
        )

    def run(self) -> list[str]:
        """Takes what fits; returns the shards that it has opened."""
        for shard in self._shards.values():
            if shard.tracked.parent not in self._shards:
                self._open(shard)
        has_room = True
        while self._heap and self._heap[0][0] <= self._until:
            if not has_room or min(self._records, self._size) <= 0:
                self.full_at = self._heap[0][0]
                break
            has_room = self._take(self._shards[heapq.heappop(self._heap)[1]])
        return list(self._taken)

    def pages(self, shard: BufferedShard) -> list[BufferedPage]:
        """Returns the pages taken of a shard; splits the last one if necessary."""
        taken = self._taken[shard.id]
        if taken.records:
            shard.split(shard.pages[taken.pages], taken.records)
            taken.pages, taken.records = taken.pages + 1, 0
        return list(itertools.islice(shard.pages, taken.pages))

    def _open(self, shard: BufferedShard) -> None:
        """Opens a shard once its whole parent is in this micro-batch or an earlier one."""
        if shard.for_executors or shard.pages:
            heapq.heappush(self._heap, (shard.since, shard.id))
        else:
            self._go_on(shard, self._taken.setdefault(shard.id, _Taken()))

    def _take(self, shard: BufferedShard) -> bool:
        """Takes a shard's oldest records; returns False once it has its share."""
        is_new = shard.id not in self._taken
        taken = self._taken.setdefault(shard.id, _Taken())
        if not (is_new and shard.for_executors):
            self._take_records(shard.pages[taken.pages], taken)
        return self._go_on(shard, taken)

    def _take_records(self, page: BufferedPage, taken: _Taken) -> None:
        """Takes a page, or those of its records that are older than other shards' records."""
        until = self._until
        if not self._all_fit and self._heap:
            until = min(until, self._heap[0][0])
        count = page.count - taken.records
        if page.last_created > until:
            count = bisect.bisect_right(page.times, until, taken.records) - taken.records
        count = min(count, self._records)
        size = page.size * count // page.count
        self._records -= count
        self._size -= size
        taken.size += size
        taken.records += count
        if taken.records == page.count:
            taken.pages, taken.records = taken.pages + 1, 0

    def _go_on(self, shard: BufferedShard, taken: _Taken) -> bool:
        if taken.pages < len(shard.pages):
            page = shard.pages[taken.pages]
            since = page.times[taken.records] if taken.records else page.created
            heapq.heappush(self._heap, (since, shard.id))
            return taken.size < self._limits.shard
        if shard.has_ended:
            for child in self._children.get(shard.id, ()):
                self._open(child)
        return True


def _pruned(
    before: Mapping[str, ShardOffset],
    moved: Mapping[str, ShardOffset],
    shards: Shards,
    lineage: Lineage,
) -> dict[str, ShardOffset]:
    """Returns the whole offset, without finished shards whose children it has."""
    # A shard's first record counts in its own micro-batch only (see ShardOffset).
    whole = {
        shard_id: msgspec.structs.replace(reached, first=None)
        for shard_id, reached in before.items()
    } | dict(moved)
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
    """True for a parent that was gone before the query: it has no range."""
    tracked = lineage.shards.get(shard_id)
    return reached.unlisted and (tracked is None or tracked.status is ShardStatus.FINISHED)
