"""Decides which shards are ready to be read, being read, and finished; without I/O.

A shard is read only after its parent is finished: this is where order across splits and rotations
comes from, and where nothing may be forgotten.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from datetime import datetime, timedelta
from enum import Enum

import msgspec

from watcher.aws.model import (
    AfterSequence,
    AtSequence,
    AtTime,
    Latest,
    Position,
    Shard,
    TrimHorizon,
    moved_behind,
    opened_at,
    without_circles,
)
from watcher.streams.messages import Notice, ReadFailed

# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Streams.html
RETENTION = timedelta(hours=24)
_LONGEST_OPEN = timedelta(hours=6)
_AT_ONCE = timedelta(minutes=1)
# From then on a shard that ends, and is listed as open, is read again each five minutes.
_MOST_REOPENED = 6


class ShardStatus(Enum):
    """The state of a shard's reading."""

    WAITING = "waiting"
    RUNNING = "running"
    LEFT_OPEN = "left open"
    """Read up to the requested end (`--no-follow`), while it may have more records."""
    FINISHED = "finished"


class TrackedShard(msgspec.Struct):
    """A known shard, its position and its state."""

    id: str
    parent: str | None
    position: Position
    status: ShardStatus = ShardStatus.WAITING
    expected: bool = True
    """True if a listing or a token has shown it; False for a parent that only its child names."""
    since: datetime | None = None
    """The time from which the shard was ours to read, by the service's clock."""
    loss_reported: bool = False
    """True if its loss of records was reported, and no record has come since."""
    logged_notices: set[str] = msgspec.field(default_factory=set)
    """The notices that were logged already."""
    past_end: bool = False
    """True if records later than the requested end were read: none before that can follow."""
    refusals: int = 0
    """The number of refused reads, although a listing shows it, since its last record."""
    reopened: int = 0
    """The number of ends, since its last record, that listings have shown to be none."""
    created: float | None = None
    """The creation time of the record that the position is behind, where known."""

    def move_behind(self, number: str, created: float | None = None) -> None:
        """Moves the position behind this number; a late record moves nothing."""
        before, self.position = self.position, moved_behind(self.position, number)
        if self.position is not before:
            self.created = created

    def hold_latest(self, time: datetime) -> None:
        """Replaces "latest" by the time that it means, which a later reader has to start at."""
        if isinstance(self.position, Latest):
            self.position = AtTime(time)

    def on_records(self) -> None:
        """Notes that records came: earlier errors are over."""
        self.loss_reported, self.refusals, self.reopened = False, 0, 0

    def finish(self) -> None:
        """Notes that all its records are read, or gone: its children's turn comes."""
        self.status, self.loss_reported = ShardStatus.FINISHED, False

    def reopen(self) -> None:
        """Notes that its end was none: it goes on behind its last record."""
        self.status, self.reopened = ShardStatus.WAITING, min(self.reopened + 1, _MOST_REOPENED)

    def unlogged(self, message: ReadFailed | Notice) -> str | None:
        """Returns a message's text if it should be logged and was not yet; else None."""
        if isinstance(message, ReadFailed):
            is_known, text = not message.is_worth_logging, message.line
        else:
            is_known, text = message.text in self.logged_notices, message.text
            self.logged_notices.add(text)
        return None if is_known else text

    def has_waited_past_retention(self, now: datetime) -> bool:
        """True if records may have left retention while the shard waited for its first read.

        A read from the trim horizon does not show that earlier records are gone. A shard takes
        records for 4 hours; one that seems older than that plus retention is an emulator's, with
        arbitrary ids.
        """
        opened, horizon = opened_at(self.id), now - RETENTION
        begins = self.position.time if isinstance(self.position, AtTime) else None
        if isinstance(self.position, AtSequence | AfterSequence) or (begins and begins > horizon):
            return False
        if opened is None or self.since is None or now - self.since < _AT_ONCE:
            return False
        return horizon - _LONGEST_OPEN < opened < horizon


class Lineage:
    """The shards of one stream, from the first listing on.

    `start` is the position of the first listing's shards; `resumed` (a token's shards) replaces it
    for those and their descendants. Shards found later start at their trim horizon, whatever
    `start` is: LATEST would lose the records before their discovery.
    """

    def __init__(self, start: Position, resumed: Iterable[TrackedShard] | None = None) -> None:
        self.shards: dict[str, TrackedShard] = {}
        # An index, since a token of thousands of shards is made every second.
        self._children: dict[str, list[str]] = {}
        for shard in resumed or ():
            self._put(shard)
        # A token without shards was saved before any existed: all are new.
        self._start: Position = start if resumed is None else TrimHorizon()
        self._first = True

    def update(self, listing: Iterable[Shard], now: datetime | None = None) -> None:
        """Adds a listing's shards: all or some, in any order, repeated, or late.

        New ones are ours to read from `now` on, by the service's clock.
        """
        listed = {shard.id: shard for shard in without_circles(listing)}
        past = self._past(listed)
        for shard in listed.values():
            if known := self.shards.get(shard.id):
                known.expected = True
                known.since = known.since or now
                if (
                    known.parent is None
                    and shard.parent is not None
                    and not self._descends(shard.parent, shard.id)
                ):
                    known.parent = shard.parent
                    self._children.setdefault(shard.parent, []).append(known.id)
        for shard in listed.values():
            if shard.id not in self.shards:
                status = ShardStatus.FINISHED if shard.id in past else ShardStatus.WAITING
                self._put(TrackedShard(shard.id, shard.parent, self._start, status, since=now))
        self._add_unlisted_parents(past, now)
        if self._first:
            self._start = TrimHorizon()
            self._first = False

    def _put(self, shard: TrackedShard) -> None:
        if self._descends(shard.parent, shard.id):
            shard.parent = None
        self.shards[shard.id] = shard
        if shard.parent is not None:
            self._children.setdefault(shard.parent, []).append(shard.id)

    def _descends(self, shard_id: str | None, ancestor: str) -> bool:
        """True if the shard is `ancestor` or descends from it: no shard may be its own ancestor."""
        while shard_id is not None and shard_id != ancestor:
            shard_id = self.shards[shard_id].parent if shard_id in self.shards else None
        return shard_id is not None

    def _past(self, listed: Mapping[str, Shard]) -> set[str]:
        """Returns the unknown shards that need no reading: ancestors of shards already read.

        A parent that only its child named has not named its own parent yet, which does need reading
        when a listing shows both. On a first listing at LATEST, all shards with a child are past,
        closed or not, and all closed ones: their records were written before.
        """
        parents = {shard.id: shard.parent for shard in listed.values()}
        for shard in self.shards.values():
            above = shard.parent or (parents.get(shard.id) if shard.expected else None)
            parents[shard.id] = above
        latest = self._first and isinstance(self._start, Latest)
        past = {shard.id for shard in listed.values() if latest and shard.end is not None}
        for shard_id in parents if latest else self.shards:
            parent = parents[shard_id]
            while parent and parent not in past and parent not in self.shards:
                past.add(parent)
                parent = parents.get(parent)
        return past

    def _add_unlisted_parents(self, past: set[str], now: datetime | None) -> None:
        """Adds parents that no listing shows: gone, or not listed yet; only a read can tell.

        It is read like any other; the service's answer that it does not exist finishes it.
        """
        for shard in list(self.shards.values()):
            parent = shard.parent
            if shard.status is not ShardStatus.WAITING or parent in past:
                continue
            if parent and parent not in self.shards:
                self._put(TrackedShard(parent, None, self._start, expected=False, since=now))

    def ready(self) -> list[TrackedShard]:
        """Returns the shards that may be read: waiting, with a finished parent or none."""
        return [shard for shard in self.shards.values() if self.is_ready(shard)]

    def is_ready(self, shard: TrackedShard) -> bool:
        """True for a shard that may be read."""
        parent = None if shard.parent is None else self.shards.get(shard.parent)
        may_start = parent is None or parent.status is ShardStatus.FINISHED
        return may_start and shard.status is ShardStatus.WAITING

    def children(self, shard_id: str) -> list[TrackedShard]:
        """Returns the known children of a shard."""
        return [self.shards[name] for name in self._children.get(shard_id, ())]

    @property
    def unfinished(self) -> list[TrackedShard]:
        """The shards still to be read, or being read."""
        return [shard for shard in self.shards.values() if shard.status is not ShardStatus.FINISHED]

    @property
    def awaits_latest(self) -> bool:
        """True if a shard that starts at LATEST is not being read yet."""
        return any(isinstance(shard.position, Latest) for shard in self.unfinished)

    def rewind(self, firsts: Mapping[str, str]) -> None:
        """Moves the shards back to these records; their descendants wait again."""
        for shard_id, number in firsts.items():
            self.shards[shard_id].position = AtSequence(number)
        again = [self.shards[shard_id] for shard_id in firsts]
        while again:
            shard = again.pop()
            shard.status = ShardStatus.WAITING
            again += [
                each for each in self.children(shard.id) if each.status is ShardStatus.FINISHED
            ]

    def forget(self, listing: Iterable[Shard], keep: Container[str] = ()) -> None:
        """Drops finished shards that left a complete listing, once their children have started.

        A known child keeps a returning parent from being read again. Finished shards without
        children stay: nothing else shows that they were read.
        """
        listed = {shard.id for shard in listing}
        begun = {
            shard.parent
            for shard in self.shards.values()
            if shard.status is not ShardStatus.WAITING
        }
        for shard in list(self.shards.values()):
            if shard.status is not ShardStatus.FINISHED or shard.id in listed or shard.id in keep:
                continue
            if shard.id in begun:
                self._drop(shard)

    def _drop(self, shard: TrackedShard) -> None:
        del self.shards[shard.id]
        if shard.parent is not None:
            siblings = self._children[shard.parent]
            siblings.remove(shard.id)
            if not siblings:
                del self._children[shard.parent]
