"""Spark's offsets: per shard how far it was read; two of them make exact ranges."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeAlias

import msgspec

from watcher.aws.model import AfterSequence, AtSequence, Position, TrimHorizon, opened_at
from watcher.errors import UsageError
from watcher.pull.ranges import Range
from watcher.streams.lineage import ShardStatus, TrackedShard

_VERSION = 1

OffsetJson: TypeAlias = dict[str, Any]
"""An offset as Spark stores it: plain JSON values."""


class ShardOffset(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far a shard was read; its unread records begin at `position`."""

    position: Position
    parent: str | None = None
    finished: bool = False
    """Everything was read, up to the end of a closed shard."""
    unlisted: bool = False
    """No listing has shown it: a parent that only its child named, most often gone since long."""
    since: datetime | None = None
    """From when on it was the query's to read, where it was there before the query."""
    first: str | None = None
    """The number of the first record the query has read, where it began at no record's number."""


class Offset(msgspec.Struct, frozen=True):
    """A point in the whole stream, as Spark's checkpoint stores it.

    A shard that an offset does not hold is unread, from its trim horizon on, or was finished
    before one of its descendants that the offset does hold.
    """

    stream: str
    shards: dict[str, ShardOffset]
    version: int = _VERSION
    begun: dict[str, ShardOffset] = {}
    """Start positions of the first micro-batch, stored in its end: Spark keeps no initial one."""
    images: Any = None
    """The shape of images (see `columns.type_shape`); None where that was not noted."""


def start_of_first_batch(end: Offset) -> Offset | None:
    """Returns where the micro-batch began whose end this is, if it is a query's first."""
    return Offset(end.stream, end.begun) if end.begun else None


# Where a query without a checkpoint begins. It has to be a constant: Spark calls for it more than
# once, never stores it, and calls again when it replays the first batch.
INITIAL: OffsetJson = {}


def to_json(offset: Offset, images: object = None) -> OffsetJson:
    """Returns the offset as plain JSON values, keys sorted: Spark compares offsets as text."""
    noted = {} if images is None else {"images": images}
    shards = {name: msgspec.to_builtins(offset.shards[name]) for name in sorted(offset.shards)}
    return {**noted, "shards": shards, "stream": offset.stream, "version": offset.version}


def from_json(plain: OffsetJson) -> Offset | None:
    """Returns the offset that `to_json` made; None for INITIAL. Raises UsageError for others."""
    if not plain:
        return None
    try:
        offset = msgspec.convert(plain, Offset)
    except msgspec.ValidationError as error:
        raise UsageError(f"the checkpoint's offset is not of dynamodb_streams: {error}") from None
    if offset.version > _VERSION:
        raise UsageError("the checkpoint was written by a newer watcher: upgrade this one")
    return offset


def ranges(start: Offset, end: Offset) -> list[Range]:
    """Returns the ranges between two offsets, one for each shard; a parent's before its child's."""
    between: list[Range] = []
    for shard_id, reached in end.shards.items():
        before = start.shards.get(shard_id, ShardOffset(TrimHorizon()))
        if before.finished:
            continue
        if reached.position != before.position:
            assert isinstance(reached.position, AfterSequence)
            number = reached.position.sequence_number
            first = before.position
            if reached.first is not None and not isinstance(first, AfterSequence):
                first = AtSequence(reached.first)  # nothing before it was there, or was asked for
            between.append(Range(shard_id, first, number))
        elif reached.finished:
            between.append(Range(shard_id, before.position))
    return _in_order(between, end)


def _in_order(between: list[Range], end: Offset) -> list[Range]:
    read = {each.shard_id for each in between}
    above: dict[str, list[str]] = {}
    for each in between:
        line = above[each.shard_id] = []
        parent = end.shards[each.shard_id].parent
        while parent in end.shards:
            if parent in read:
                line.append(parent)
            parent = end.shards[parent].parent
    parents_first = sorted(between, key=lambda each: len(above[each.shard_id]))
    return [
        msgspec.structs.replace(each, topmost=line[-1]) if (line := above[each.shard_id]) else each
        for each in parents_first
    ]


def resume(offset: Offset) -> list[TrackedShard]:
    """Returns the shards of an offset, for `Lineage(resumed=…)`."""
    return [_tracked(shard_id, reached, reached) for shard_id, reached in offset.shards.items()]


def tracked(shard_id: str, start: Offset, end: Offset) -> TrackedShard:
    """Returns a shard that a micro-batch reads, as it was at the start of that."""
    return _tracked(shard_id, start.shards.get(shard_id), end.shards[shard_id])


def _tracked(shard_id: str, start: ShardOffset | None, end: ShardOffset) -> TrackedShard:
    start = start or ShardOffset(TrimHorizon())
    return TrackedShard(
        shard_id,
        end.parent,
        start.position,
        ShardStatus.FINISHED if start.finished else ShardStatus.WAITING,
        expected=not end.unlisted,
        # What has begun after the query was the query's to read from its first record on.
        since=start.since or opened_at(shard_id),
    )
