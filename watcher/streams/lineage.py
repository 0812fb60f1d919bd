"""Pure: which shards are ready to be read, are being read, and are finished.

A shard is read only after its parent is finished: this is where order across splits and
rotations comes from, and where nothing may be forgotten.
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
from watcher.streams.messages import Notice, Retrying

# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Streams.html
RETENTION = timedelta(hours=24)
_LONGEST_OPEN = timedelta(hours=6)
_AT_ONCE = timedelta(minutes=1)


class ShardStatus(Enum):
    """Where a shard stands in its life."""

    WAITING = "waiting"
    RUNNING = "running"
    LEFT_OPEN = "left open"
    """Everything up to the end that was asked for (`--no-follow`) has been read."""
    FINISHED = "finished"


class TrackedShard(msgspec.Struct):
    """A shard that the lineage knows, and where to read it from."""

    id: str
    parent: str | None
    position: Position
    status: ShardStatus = ShardStatus.WAITING
    expected: bool = True
    """True if a listing or a token has shown it; False for a parent that only its child named."""
    since: datetime | None = None
    """The time from which on the shard was ours to read, by the service's clock."""
    loss_reported: bool = False
    """True if the user knows that records of it are gone, and none has come since."""
    logged_notices: set[str] = msgspec.field(default_factory=set)
    """Notices that were logged, and need not be logged again."""
    refusals: int = 0
    """The times that the service lists it, but does not let it be read, since records came."""

    def move_behind(self, number: str) -> None:
        """Moves the position behind the record of this number; one that comes late moves none."""
        self.position = moved_behind(self.position, number)

    def on_records(self) -> None:
        """Takes in records: the errors before them are over."""
        self.loss_reported, self.refusals = False, 0

    def unlogged(self, message: Retrying | Notice) -> str | None:
        """Returns the text of a message that is worth logging and was not logged yet; else None."""
        if isinstance(message, Retrying):
            said, text = not message.is_worth_logging, message.line
        else:
            said, text = message.text in self.logged_notices, message.text
            self.logged_notices.add(text)
        return None if said else text

    def has_waited_past_retention(self, now: datetime) -> bool:
        """True if records may have left retention while the shard waited for its first read.

        A read from the trim horizon says nothing of what stood there before. A shard takes records
        for 4 hours; one that seems older than that and retention is of an emulator, which numbers
        its shards as it likes.
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

    `start` is where the shards of the first listing begin; `resumed` (a token's shards, by id)
    replaces it for those and what descends from them. Shards found later begin at their trim
    horizon, whatever the start was: starting them at LATEST loses what came before we looked.
    """

    def __init__(self, start: Position, resumed: Iterable[TrackedShard] | None = None) -> None:
        self.shards: dict[str, TrackedShard] = {}
        # Kept beside the shards: a token of thousands is made every second.
        self._children: dict[str, list[str]] = {}
        for shard in resumed or ():
            self._put(shard)
        # A token without shards was saved before there were any: all came after it.
        self._start: Position = start if resumed is None else TrimHorizon()
        self._first = True

    def update(self, listing: Iterable[Shard], now: datetime | None = None) -> None:
        """Take a listing in: whole or of some shards only, in any order, repeated, or late.

        What is new in it is ours to read from `now` on, by the service's clock.
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
        """True if it is this one, or below it; nothing that is listed may be so above itself."""
        while shard_id is not None and shard_id != ancestor:
            shard_id = self.shards[shard_id].parent if shard_id in self.shards else None
        return shard_id is not None

    def _past(self, listed: Mapping[str, Shard]) -> set[str]:
        """The unknown shards that are over for us: ancestors of one whose turn they made way for.

        A parent that only its child named has told nothing of its own parent yet: that one is not
        over when a listing shows both at last. On a first pass at LATEST all with a child are,
        whether they look closed or not, and all that look closed: what stands in them came before.
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
        """A parent that no listing shows is gone, or the listing lags: only reading it can tell.

        It is read as any other; the service's word that there is no such shard finishes it.
        """
        for shard in list(self.shards.values()):
            parent = shard.parent
            if shard.status is not ShardStatus.WAITING or parent in past:
                continue
            if parent and parent not in self.shards:
                self._put(TrackedShard(parent, None, self._start, expected=False, since=now))

    def ready(self) -> list[TrackedShard]:
        """The shards whose turn has come: waiting, and their parent finished (or none)."""
        return [
            shard
            for shard in self.shards.values()
            if shard.status is ShardStatus.WAITING
            and (
                shard.parent is None
                or shard.parent not in self.shards
                or self.shards[shard.parent].status is ShardStatus.FINISHED
            )
        ]

    def children(self, shard_id: str) -> list[TrackedShard]:
        """The known children of a shard."""
        return [self.shards[name] for name in self._children.get(shard_id, ())]

    @property
    def unfinished(self) -> list[TrackedShard]:
        """The shards still to be read, or being read."""
        return [shard for shard in self.shards.values() if shard.status is not ShardStatus.FINISHED]

    @property
    def awaits_latest(self) -> bool:
        """True if a shard is to be read from LATEST that is not being read yet."""
        return any(isinstance(shard.position, Latest) for shard in self.unfinished)

    def rewind(self, firsts: Mapping[str, str]) -> None:
        """Go back to these records of shards; what descends from them waits for its turn again."""
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
        """Drop the finished shards that left a whole listing, once their children are begun.

        A child that is known keeps a parent that shows up again from being read again. Shards
        finished without children stay: nothing else remembers that they were read.
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
