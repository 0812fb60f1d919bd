"""A shard that is pulled: when it is to be read again, and what it has read."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from concurrent.futures import Future

import msgspec

from watcher.reading.lineage import Tracked
from watcher.reading.messages import Message, Page
from watcher.reading.shard_reader import ShardReader
from watcher.record import page as pages
from watcher.record.origin import Origin
from watcher.record.record import Record
from watcher.service.model import AfterSequence, Latest


class Pulled(msgspec.Struct, eq=False):
    """A shard that is being read: its reader, and what it has read and not given out yet."""

    tracked: Tracked
    reader: ShardReader
    due: float = 0.0
    """When it is to be read again, by itself and …"""
    soonest: float = 0.0
    """… where somebody asks who would go away with nothing."""
    turn: float = -math.inf
    """Until then the service would refuse a read, as it has refused others (see `read_rate`)."""
    answer: Future[list[Message]] | None = None
    """What a read of it brings that is going on, or has just ended."""
    began: float = 0.0
    """When it has begun."""
    records: Iterator[Record] = iter(())
    size: int = 0
    """How many bytes hold what it has read and not given out."""
    left_out: int = 0
    """How many records a filter has left out of what was given out."""
    buffered: bool = False
    """Whether a record of it stands in the heap."""
    busy_until: float = 0.0
    """Until then more records of it are likely."""
    refused: bool = False
    """Whether the service lists it, and does not let it be read just now."""
    ended: bool = False

    @property
    def has_begun(self) -> bool:
        """Whether "latest" is a moment, where it is to be read from there."""
        return not isinstance(self.reader.position, Latest)

    @property
    def may_have_more(self) -> bool:
        """Whether another read may find something at once."""
        return not (self.refused or self.reader.at_tip)

    @property
    def is_free(self) -> bool:
        """Whether it may be read: nothing of it is waiting, or still to come."""
        return not (self.buffered or self.ended or self.answer)

    @property
    def awaits_turn(self) -> bool:
        """Whether another read may find something, and the service lets it come only later."""
        return self.turn > -math.inf and self.is_free and self.may_have_more

    def takes(self, page: Page, origin: Origin) -> None:
        """Its records are given out after those that wait."""
        self.records = itertools.chain(self.records, self._given_out(page, origin))
        self.size += len(page.body)

    def _given_out(self, page: Page, origin: Origin) -> Iterator[Record]:
        """What was left out goes with the record after it, and behind the last one by itself."""
        records = pages.records(page.body, origin, page.first, page.last)
        left_out = 0
        for record, upto in zip(records, page.left_out or itertools.repeat(0), strict=False):
            self.left_out += upto - left_out
            left_out = upto
            yield record
        if page.left_out:
            self.left_out += page.left_out[-1] - left_out
            self.tracked.position = AfterSequence(page.last_sequence_number)

    def counted(self) -> int:
        """How many more were left out since the last time."""
        count, self.left_out = self.left_out, 0
        return count

    def read_with(self, reader: ShardReader, pause: float) -> None:
        """Have another reader go on, after so many seconds."""
        self.reader = reader
        reader.pause = pause

    def rests(self, now: float, seconds: float, least: float) -> None:
        """Let it rest so long, or at least so long."""
        self.due, self.soonest = now + seconds, now + min(least, seconds)
        turn = self.reader.reads.pause()
        self.turn = now + turn if turn > 0 else -math.inf
