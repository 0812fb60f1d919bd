"""Spark's offsets: a position for each shard; two offsets make exact ranges."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypeAlias

import msgspec

from watcher.aws.model import AfterSequence, AtSequence, Position, TrimHorizon, opened_at
from watcher.errors import UsageError
from watcher.pull.ranges import Range
from watcher.streams.lineage import ShardStatus, TrackedShard

_VERSION = 2

OffsetJson: TypeAlias = dict[str, Any]
"""An offset as Spark stores it: plain JSON values."""


class ShardOffset(msgspec.Struct, frozen=True):
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


class Offset(msgspec.Struct, frozen=True):
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


class _StoredShard(msgspec.Struct, frozen=True, omit_defaults=True):
    """A shard in the JSON of an offset; the names of its fields are in order."""

    after: str | None = None
    """The sequence number of the last record read; None: no record was."""
    finished: bool = False
    first: str | None = None
    parent: str | None = None
    position: Position | None = None
    """Any position other than `after`."""
    since: datetime | None = None
    unlisted: bool = False


class _StoredOffset(msgspec.Struct, frozen=True):
    """The JSON of an offset: Spark writes one a micro-batch, so it is short."""

    shards: dict[str, _StoredShard]
    stream: str
    version: int
    begun: dict[str, _StoredShard] = {}
    created: datetime | None = None
    images: str | None = None
    prefix: str = ""
    """The common beginning of all shard ids, which each leaves out."""


def to_json(offset: Offset, images: str | None = None) -> OffsetJson:
    """Returns the offset as plain JSON values, keys sorted: Spark compares offsets as text."""
    prefix = _common_prefix(offset)
    stored = {
        "begun": _stored(offset.begun, prefix) or None,
        "created": msgspec.to_builtins(offset.created),
        "images": images,
        "prefix": prefix or None,
        "shards": _stored(offset.shards, prefix),
        "stream": offset.stream,
        "version": _VERSION,
    }
    return {name: value for name, value in stored.items() if value is not None}


def _common_prefix(offset: Offset) -> str:
    ids = {*offset.shards, *offset.begun}
    ids |= {each.parent for each in offset.shards.values() if each.parent}
    if len(ids) < 2:
        return ""
    first, last = min(ids), max(ids)
    shared = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))
    return first[: min(sum(1 for _ in shared), len(first) - 1)]


def _stored(shards: Mapping[str, ShardOffset], prefix: str) -> dict[str, OffsetJson]:
    cut = len(prefix)
    stored = {}
    for name in sorted(shards):
        each = shards[name]
        number = position = None
        if isinstance(each.position, AfterSequence):
            number = each.position.sequence_number
        else:
            position = each.position
        stored[name[cut:]] = msgspec.to_builtins(
            _StoredShard(
                number,
                each.finished,
                each.first,
                each.parent and each.parent[cut:],
                position,
                each.since,
                each.unlisted,
            )
        )
    return stored


def from_json(plain: OffsetJson) -> Offset | None:
    """Returns the offset that `to_json` made; None for INITIAL. Raises UsageError for others."""
    if not plain:
        return None
    try:
        stored = msgspec.convert(plain, _StoredOffset)
        if stored.version > _VERSION:
            raise UsageError("the checkpoint was written by a newer watcher: upgrade this one")
        begun, shards = (_read(each, stored.prefix) for each in (stored.begun, stored.shards))
    except msgspec.ValidationError as error:
        raise UsageError(f"the checkpoint's offset is not of dynamodb_streams: {error}") from None
    return Offset(stored.stream, shards, begun, stored.images, stored.created)


def _read(stored: Mapping[str, _StoredShard], prefix: str) -> dict[str, ShardOffset]:
    shards = {}
    for name, each in stored.items():
        position = each.position if each.after is None else AfterSequence(each.after)
        if position is None:
            raise msgspec.ValidationError(f"shard {name} has no position")
        parent = None if each.parent is None else prefix + each.parent
        shards[prefix + name] = ShardOffset(
            position, parent, each.finished, each.unlisted, each.since, each.first
        )
    return shards


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
