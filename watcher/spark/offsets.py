"""Spark's offsets: a position for each shard; two offsets make exact ranges."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeAlias

import msgspec

from watcher.aws.model import AfterSequence, AtSequence, Position, TrimHorizon, opened_at
from watcher.errors import UsageError
from watcher.pull.ranges import Range
from watcher.streams.lineage import ShardStatus, TrackedShard

_VERSION = 3

OffsetJson: TypeAlias = dict[str, Any]
"""An offset as Spark stores it: plain JSON values."""


class ShardOffset(msgspec.Struct, frozen=True, omit_defaults=True):
    """The part of a shard that was read; its unread records begin at `position`."""

    position: Position
    parent: str | None = None
    finished: bool = False
    """True if the shard is closed and read to its end."""
    unlisted: bool = False
    """True for a parent that only its child names, as no listing shows it; most are long gone."""
    since: datetime | None = None
    """The time from which the query reads it, if it existed before the query."""
    first: str | None = None
    """The number of its first record, in a micro-batch whose start is not a record's number."""


class Offset(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A point in the whole stream, as Spark's checkpoint stores it.

    A shard that an offset does not hold is unread, from its trim horizon on, or was finished
    before one of its descendants that the offset does hold.
    """

    stream: str
    shards: dict[str, ShardOffset]
    begun: dict[str, ShardOffset] = {}
    """The first micro-batch's start, which its end holds because Spark does not store it."""
    images: str | None = None
    """The form of images (`imageFormat`); None: there are none."""
    created: datetime | None = None
    """The time at which the stream was created."""


def with_begun(end: OffsetJson, initial: OffsetJson) -> OffsetJson:
    """Returns the end of a query's first micro-batch, with its start in it."""
    first, last = from_json(initial), from_json(end)
    assert first is not None and last is not None
    return to_json(msgspec.structs.replace(last, begun=first.shards), last.images)


def start_of_first_batch(end: Offset) -> Offset | None:
    """Returns the start of the micro-batch with this end, if it is the query's first."""
    return Offset(end.stream, end.begun) if end.begun else None


# The start of a query without a checkpoint. It has to be a constant: Spark asks for it more than
# once, never stores it, and asks again when it replays the first batch.
INITIAL: OffsetJson = {}


def to_json(offset: Offset, images: str | None = None) -> OffsetJson:
    """Returns the offset as plain JSON values, keys sorted: Spark compares offsets as text."""
    stored = msgspec.structs.replace(offset, images=images)
    plain: OffsetJson = msgspec.to_builtins(stored, order="sorted")
    return {**plain, "version": _VERSION}


def from_json(plain: OffsetJson) -> Offset | None:
    """Returns the offset that `to_json` made; None for INITIAL. Raises UsageError for others."""
    if not plain:
        return None
    rest = {**plain}
    if rest.pop("version", _VERSION) != _VERSION:
        raise UsageError("the checkpoint was written by another version of watcher: use that one")
    try:
        return msgspec.convert(rest, Offset)
    except msgspec.ValidationError as error:
        raise UsageError(f"the checkpoint's offset is not of dynamodb_streams: {error}") from None


def ranges(start: Offset, end: Offset) -> list[Range]:
    """Returns the ranges between two offsets, one for each shard; a parent's before its child's."""
    between: list[Range] = []
    for shard_id, reached in end.shards.items():
        before = start.shards.get(shard_id, ShardOffset(TrimHorizon()))
        if reached.position != before.position:
            assert isinstance(reached.position, AfterSequence)
            number = reached.position.sequence_number
            first = before.position
            if reached.first is not None and not isinstance(first, AfterSequence):
                first = AtSequence(reached.first)  # nothing before it existed, or was requested
            between.append(Range(shard_id, first, number))
        elif reached.finished and not before.finished:
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
    """Returns a micro-batch's shard, as of the batch's start."""
    return _tracked(shard_id, start.shards.get(shard_id), end.shards[shard_id])


def _tracked(shard_id: str, start: ShardOffset | None, end: ShardOffset) -> TrackedShard:
    start = start or ShardOffset(TrimHorizon())
    return TrackedShard(
        shard_id,
        end.parent,
        start.position,
        ShardStatus.FINISHED if start.finished else ShardStatus.WAITING,
        expected=not end.unlisted,
        # The query reads a shard that opened after its start from its first record on.
        since=start.since or opened_at(shard_id),
    )
