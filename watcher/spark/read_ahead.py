"""Reads open shards ahead of the micro-batches: whose turn it is, what is held, where room ends.

Nothing waits or runs by itself here: `reader_threads` drives it, or a test, a step at a time.
"""

from __future__ import annotations

import heapq
import itertools
import math
import re
from collections import deque
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Protocol

import msgspec
import pyarrow as pa

from watcher.aws.model import AfterSequence, Position, Service
from watcher.clock import Clock
from watcher.pull import executor
from watcher.spark.deferred_range import BEHIND_SECONDS, Backlog, DeferredRange
from watcher.streams.lineage import ShardStatus, TrackedShard
from watcher.streams.messages import Message, Page
from watcher.streams.shard_reader import ShardReader

# Of packed pages. A task's go to its executor with it: 128 MB is Spark's limit, 16 leave room.
SHARD_BYTES = 16 * 1024 * 1024
BATCH_BYTES = 64 * 1024 * 1024
_IDLE_PAUSE = 1.0
# One call takes some 5 ms of this one process: with many idle shards each waits longer.
_IDLE_PAUSE_A_SHARD = 0.01

# A page of 840 KB takes 0.2 ms to a tenth of its size, random text 0.6 ms to a half of it; each of
# the JVM's five copies of it costs more, and its garbage collector stumbles over large arrays.
_CODEC = "lz4"
# A number can't follow this anywhere but in a record itself; decoding takes 1,000 times longer.
_CREATED = re.compile(rb'"ApproximateCreationDateTime":\s*([0-9.eE+]+)')


class HeldPage(msgspec.Struct, frozen=True):
    """A page, its body compressed."""

    packed: Page
    body_size: int
    """The body's own length."""
    after: Position
    """What comes right before its first record."""
    created: float
    """When its first record was made."""
    size: int
    """Its part of the packed body."""

    @classmethod
    def of(cls, page: Page, after: Position) -> HeldPage:
        """A page made small."""
        found = _CREATED.search(page.body)
        body = pa.compress(page.body, codec=_CODEC, asbytes=True)
        packed = msgspec.structs.replace(page, body=body)
        created = float(found[1]) if found else 0.0
        return cls(packed, len(page.body), after, created, len(body))

    @property
    def upto(self) -> str:
        """The number of its last record."""
        return self.packed.last_sequence_number

    @property
    def count(self) -> int:
        """How many records it holds."""
        return self.packed.count

    def page(self) -> Page:
        """The page as it came."""
        body = pa.decompress(self.packed.body, self.body_size, codec=_CODEC, asbytes=True)
        return msgspec.structs.replace(self.packed, body=body)

    def split(self, count: int) -> tuple[HeldPage, HeldPage]:
        """Its first `count` records, and the others."""
        head, tail = self.page().split(count)
        created = tail.records()[0].dynamodb.ApproximateCreationDateTime or 0.0
        part = self.size * count // self.count
        return (
            self._part(head, self.after, self.created, part),
            self._part(tail, AfterSequence(head.last_sequence_number), created, self.size - part),
        )

    def _part(self, page: Page, after: Position, created: float, size: int) -> HeldPage:
        packed = msgspec.structs.replace(page, body=self.packed.body)
        return HeldPage(packed, self.body_size, after, created, size)


News = Message | HeldPage | DeferredRange
"""What a shard's reader has to say; of a page, that it is there."""


class HeldShard:
    """A shard that is being read, or whose pages are not all delivered."""

    def __init__(
        self, tracked: TrackedShard, until: datetime | None, *, closed: bool = False
    ) -> None:
        self.tracked = tracked
        self.closed = closed
        self.reader: ShardReader | None = None
        """None for a closed shard that executors read themselves."""
        self.until = until
        self.pages: deque[HeldPage] = deque()
        self.frontier = tracked.position
        """Where what was not read yet begins."""
        self.bytes = 0
        self.attempted = False
        self.backlog: Backlog | None = None
        """None where records have to be counted here."""
        self.left: DeferredRange | None = None
        """What executors are to read; nothing is held then, and nothing read."""

    @property
    def id(self) -> str:
        """The shard's id."""
        return self.tracked.id

    @property
    def has_ended(self) -> bool:
        """Whether nothing will follow: it is closed, and read to its end (or by executors)."""
        return self.tracked.status is ShardStatus.FINISHED

    @property
    def is_complete(self) -> bool:
        """Whether it has nothing (more) for a query that stops at some moment."""
        return not self.pages and self.tracked.status in (
            ShardStatus.FINISHED,
            ShardStatus.CAUGHT_UP,
        )

    def read(self, service: Service) -> list[News]:
        """One attempt of its reader. Raises StreamError."""
        assert self.reader is not None
        self.reader.closed = self.closed
        reads, backlog = self.reader.reads, self.backlog
        messages, left = list[Message](), None
        if backlog is not None and backlog.awaits_turn:
            left = executor.run(backlog.tip(reads), service)
            self.reader.pause = reads.pause()
        else:
            messages = executor.read(self.reader, service)
            if backlog is not None and not self.reader.finished:
                left = executor.run(backlog.found(messages, reads), service)
        if left is None:
            return [self._held(message) for message in messages]
        self.frontier = AfterSequence(left.upto)
        return [*(each for each in messages if not isinstance(each, Page)), left]

    def _held(self, message: Message) -> News:
        if not isinstance(message, Page):
            return message
        held = HeldPage.of(message, self.frontier)
        self.frontier = AfterSequence(held.upto)
        return held

    def covered(self, position: Position) -> int:
        """Forget what lies before a position, it is delivered; answer how many bytes it was."""
        freed = 0
        if isinstance(position, AfterSequence):
            number = int(position.sequence_number)
            while self.pages and int(self.pages[0].upto) <= number:
                freed += self.pages.popleft().size
            if self.left is not None and int(self.left.upto) <= number:
                self.left = None
        self.bytes -= freed
        return freed

    def leave(self, what: DeferredRange) -> int:
        """Executors read this, also what of it is held; answer how many bytes that was."""
        self.left = what
        freed, self.bytes = self.bytes, 0
        self.pages.clear()
        return freed

    def split(self, page: HeldPage, count: int) -> HeldPage:
        """Part a page in two; the first of them, which holds so many records."""
        head, tail = page.split(count)
        index = self.pages.index(page)
        self.pages[index] = head
        self.pages.insert(index + 1, tail)
        return head

    def between(self, start: Position, upto: str | None) -> list[HeldPage] | None:
        """The pages of a range; None where they are not here (any more)."""
        if upto is None:
            return [] if self.reader is not None and self.has_ended and not self.pages else None
        end = int(upto)
        found = [each for each in self.pages if int(each.upto) <= end]
        whole = found and found[0].after == start and found[-1].upto == upto
        return found if whole else None


class ReadAhead:
    """The shards of which something is held, or read.

    `news` is what the readers have said, pages included, in its order: to be heard before a page
    is given out that came after it.
    """

    def __init__(
        self,
        arn: str,
        service: Service,
        clock: Clock,
        *,
        behind_seconds: float = BEHIND_SECONDS,
    ) -> None:
        self.shards: dict[str, HeldShard] = {}
        self.news: deque[tuple[HeldShard, News]] = deque()
        self.failure: BaseException | None = None
        """What has ended the reading."""
        self._arn = arn
        self._service = service
        self._clock = clock
        self._behind_seconds = behind_seconds
        self._due: list[tuple[float, int, HeldShard]] = []
        self._parked: list[HeldShard] = []
        self._order = itertools.count()
        self._bytes = 0

    def add(
        self,
        tracked: TrackedShard,
        until: datetime | None,
        *,
        closed: bool = False,
        may_leave: bool = False,
    ) -> None:
        """Begin to read a shard; with `may_leave`, a backlog is left to executors."""
        shard = self.shards[tracked.id] = HeldShard(tracked, until, closed=closed)
        if may_leave:
            shard.backlog = Backlog(self._arn, shard.id, self._behind_seconds, self._clock)
        self.begin(shard)

    def add_closed(self, tracked: TrackedShard) -> None:
        """Keep a closed shard in mind that executors read themselves."""
        self.shards[tracked.id] = HeldShard(tracked, None, closed=True)

    def begin(self, shard: HeldShard, pause: float = 0.0) -> None:
        """A new reader for a shard, where the last one has come to."""
        rate = None if shard.reader is None else shard.reader.reads.rate
        shard.reader = ShardReader(
            self._arn,
            shard.id,
            shard.frontier,
            closed=shard.closed,
            until=shard.until,
            clock=self._clock,
            # Of a backlog an executor reads the next page.
            prefetches=shard.backlog is None,
            rate=rate,
        )
        self._schedule(shard, max(pause, shard.reader.reads.pause()))

    def delivered(self, shard: HeldShard, position: Position) -> bool:
        """Everything of a shard before this position is done with; whether there is more to do."""
        was_left = shard.left is not None
        freed = shard.covered(position)
        if goes_on := was_left and shard.left is None:
            self.begin(shard)
        self._make_room(freed)
        return freed > 0 or goes_on

    def _make_room(self, freed: int) -> None:
        if freed:
            self._bytes -= freed
            parked, self._parked = self._parked, []
            for each in parked:
                assert each.reader is not None
                self._schedule(each, each.reader.reads.pause())

    # Whose turn it is

    def wait(self) -> float:
        """Seconds until the next shard's turn; none or less where it has come."""
        return self._due[0][0] - self._clock.monotonic() if self._due else math.inf

    def next(self) -> HeldShard | None:
        """The shard whose turn has come; it gets no other before `take`."""
        return heapq.heappop(self._due)[2] if self.wait() <= 0 else None

    def take(self, shard: HeldShard, read: list[News]) -> None:
        """What one read of a shard has brought."""
        for each in read:
            if isinstance(each, HeldPage):
                shard.pages.append(each)
                shard.bytes += each.size
                self._bytes += each.size
            if isinstance(each, DeferredRange):
                self._make_room(shard.leave(each))
            self.news.append((shard, each))
        shard.attempted = True
        self._put_back(shard)

    def step(self, service: Service) -> bool:
        """Read the shard whose turn has come; whether there was one. Raises StreamError."""
        shard = self.next()
        if shard is not None:
            self.take(shard, shard.read(service))
        return shard is not None

    def _put_back(self, shard: HeldShard) -> None:
        assert shard.reader is not None
        if shard.reader.finished or shard.left is not None:
            return
        # Twice a micro-batch's: one is being worked on, the next is being read.
        if shard.bytes >= 2 * SHARD_BYTES or self._bytes >= 2 * BATCH_BYTES:
            self._parked.append(shard)
            return
        pause = shard.reader.pause
        if pause >= _IDLE_PAUSE:
            pause = max(pause, len(self.shards) * _IDLE_PAUSE_A_SHARD)
        self._schedule(shard, pause)

    def _schedule(self, shard: HeldShard, pause: float) -> None:
        heapq.heappush(self._due, (self._clock.monotonic() + pause, next(self._order), shard))


class Driver(Protocol):
    """Who steps a read-ahead."""

    ahead: ReadAhead

    @property
    def lock(self) -> AbstractContextManager[object]:
        """Held by those who look into the read-ahead, or change it."""

    def wake(self) -> None:
        """There is more to read now, or soon; the lock is held."""

    def wait(self, seconds: float) -> None:
        """Until something was read, but no longer; the lock is held. May raise StreamError."""

    def stop(self) -> None:
        """Read nothing more."""
