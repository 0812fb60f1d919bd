"""A shard as Spark's driver holds it: compressed pages, or a range that executors read."""

from __future__ import annotations

import itertools
import math
import re
from array import array
from collections import deque
from datetime import datetime

import msgspec
import pyarrow as pa

from watcher.aws.model import AfterSequence, AtSequence, AtTime, Position, Service, opened_at
from watcher.clock import CLOCK, Clock
from watcher.spark.deferred_range import BacklogDetector, DeferredRange
from watcher.streams.lineage import ShardStatus, TrackedShard
from watcher.streams.messages import Message, Page
from watcher.streams.shard_reader import ShardReader

# Compresses a page of 840 KB to a tenth in 0.2 ms, random text to a half in 0.6 ms. Each of the
# JVM's five copies would cost more, and its garbage collector is slow with large arrays.
_CODEC = "lz4"
# A number follows this only in a record itself; decoding takes 1,000 times longer.
_CREATED = re.compile(rb'"ApproximateCreationDateTime":\s*([0-9.eE+]+)')
_NUMBER = re.compile(rb'"SequenceNumber":\s*"([0-9]+)"')


class BufferedPage(msgspec.Struct, frozen=True):
    """A page, its body compressed."""

    packed: Page
    body_size: int
    """The length of the body."""
    after: Position
    """The position right before its first record."""
    created: float
    """The creation time of its first record; 0: unknown."""
    last_created: float
    """The creation time of its last record."""
    size: int
    """Its share of the packed body, in bytes."""
    found_times: list[array[float]] = []
    """The cached `times`."""

    @classmethod
    def packed_from(cls, page: Page, after: Position, now: float = math.inf) -> BufferedPage:
        """Compresses a page; a record's time later than `now` counts as `now`."""
        body = pa.compress(page.body, codec=_CODEC, asbytes=True)
        packed = msgspec.structs.replace(page, body=body)
        first = _CREATED.search(page.body)
        last = min(page.last_created or 0.0, now)
        created = min(float(first[1]), last) if first else 0.0
        made = cls(packed, len(page.body), after, created, last, len(body))
        # The first time in the body is that of a record that was left out.
        return made if page.start == 0 else msgspec.structs.replace(made, created=made.times[0])

    def __reduce__(self) -> tuple[object, ...]:
        """Leaves out the records' times, which executors don't need."""
        values = (self.packed, self.body_size, self.after, self.created, self.last_created)
        return BufferedPage, (*values, self.size)

    @property
    def times(self) -> array[float]:
        """The records' creation times, in rising order."""
        if not self.found_times:
            page = self.page()
            found = _CREATED.findall(page.body)[page.start : page.stop]
            if len(found) < page.count:
                found = [b"0"] * page.count
            rising = itertools.accumulate(map(float, found), max)
            self.found_times.append(array("d", (min(each, self.last_created) for each in rising)))
        return self.found_times[0]

    @property
    def upto(self) -> str:
        """The number of its last record."""
        return self.packed.last_sequence_number

    @property
    def count(self) -> int:
        """The number of its records."""
        return self.packed.count

    def page(self) -> Page:
        """Returns the uncompressed page."""
        body = pa.decompress(self.packed.body, self.body_size, codec=_CODEC, asbytes=True)
        return msgspec.structs.replace(self.packed, body=body)

    def split(self, count: int) -> tuple[BufferedPage, BufferedPage]:
        """Returns its first `count` records, and the rest."""
        page, times = self.packed, self.times
        cut, part = page.start + count, self.size * count // self.count
        number = self._number(cut - 1)
        head = Page(page.start, cut, number, page.body)
        tail = Page(cut, page.stop, page.last_sequence_number, page.body)
        return (
            self._part(head, self.after, times[:count], part),
            self._part(tail, AfterSequence(number), times[count:], self.size - part),
        )

    def _number(self, index: int) -> str:
        found = _NUMBER.finditer(self.page().body)
        return str(next(itertools.islice(found, index, None))[1], "ascii")

    def _part(self, page: Page, after: Position, times: array[float], size: int) -> BufferedPage:
        return BufferedPage(page, self.body_size, after, times[0], times[-1], size, [times])


ReaderEvent = Message | BufferedPage | DeferredRange
"""A message of a shard's reader; a page is buffered, or replaced by a deferred range."""


class BufferedShard:
    """A shard that is being read, or has undelivered pages."""

    def __init__(
        self,
        tracked: TrackedShard,
        bounded_at: datetime | None,
        *,
        closed: bool = False,
        clock: Clock = CLOCK,
    ) -> None:
        self.tracked = tracked
        self.read_until = unread_since(tracked)
        """The creation time up to which it is read; no unread record is older."""
        self.idle_at = -math.inf
        """The time of the last read that found nothing more, by this machine."""
        self.progressed_at = clock.monotonic()
        """The time of the last successful read, or of the (new) start of the reading."""
        self.tried_at = self.progressed_at
        """The time of the last read, successful or not."""
        self.is_parked = False
        """True while it is not read, until what is buffered of it is delivered."""
        self.is_being_read = False
        """True from `ReadAhead.next` to `take`."""
        self._clock = clock
        self.closed = closed
        self.reader: ShardReader | None = None
        """None for a closed shard, which executors read."""
        self.bounded_at = bounded_at
        self.pages: deque[BufferedPage] = deque()
        self.frontier = tracked.position
        """The position behind the last record read."""
        self.first: str | None = None
        """The number of its first record, if its start position is not a record's."""
        self.bytes = 0
        self.attempted = False
        """True once it was read, successfully or not."""
        self.backlog: BacklogDetector | None = None
        """None if the driver has to count the records."""
        self.deferred: DeferredRange | None = None
        """A range that executors read; meanwhile the driver buffers and reads nothing."""

    @property
    def id(self) -> str:
        """The shard's id."""
        return self.tracked.id

    @property
    def has_ended(self) -> bool:
        """True once nothing follows: it is closed, and read to its end, here or by executors."""
        return self.tracked.status is ShardStatus.FINISHED

    @property
    def may_have_more(self) -> bool:
        """True while it is being read, and the last read has not found its end."""
        reader = self.reader
        return not (reader is None or self.is_parked or reader.finished) and reader.may_have_more

    @property
    def is_complete(self) -> bool:
        """True once it has nothing more for a query with an end (`availableNow`)."""
        return not self.pages and self.tracked.status in (
            ShardStatus.FINISHED,
            ShardStatus.LEFT_OPEN,
        )

    @property
    def for_executors(self) -> bool:
        """True if executors read it, or a range of it; a micro-batch takes that as a whole."""
        return self.reader is None or self.deferred is not None

    @property
    def since(self) -> float:
        """A creation time before which all its records are delivered."""
        if self.deferred is not None:
            return self.deferred.created
        return self.pages[0].created if self.pages else self.read_until

    def read(self, service: Service) -> list[ReaderEvent]:
        """Makes one attempt to read it. Raises StreamError."""
        assert self.reader is not None
        self.reader.closed = self.closed
        reads, backlog = self.reader.reads, self.backlog
        messages, deferred = list[Message](), None
        if backlog is not None and backlog.awaits_turn:
            deferred = backlog.find_end(reads, service)
            self.reader.delay = reads.rate.delay()
        else:
            messages = self.reader.attempt(service)
            self._note_first(messages)
            if backlog is not None and not self.reader.finished:
                deferred = backlog.on_messages(messages, reads, service)
        if deferred is None:
            return [self._buffered(message) for message in messages]
        self.frontier = AfterSequence(deferred.upto)
        return [*(each for each in messages if not isinstance(each, Page)), deferred]

    def _note_first(self, messages: list[Message]) -> None:
        if self.first is not None or isinstance(self.frontier, AfterSequence):
            return
        for each in messages:
            if isinstance(each, Page):
                self.first = each.records()[0].dynamodb.SequenceNumber
                self.frontier = AtSequence(self.first)
                return

    def _buffered(self, message: Message) -> ReaderEvent:
        if not isinstance(message, Page):
            return message
        page = BufferedPage.packed_from(message, self.frontier, self._clock.time())
        self.frontier = AfterSequence(page.upto)
        return page

    def drop_delivered(self, position: Position) -> int:
        """Drops what was delivered before a position; returns the freed bytes."""
        freed = 0
        if isinstance(position, AfterSequence):
            number = int(position.sequence_number)
            while self.pages and int(self.pages[0].upto) <= number:
                freed += self.pages.popleft().size
            if self.deferred is not None and int(self.deferred.upto) <= number:
                self.deferred = None
        self.bytes -= freed
        return freed

    def defer(self, deferred: DeferredRange) -> int:
        """Leaves a range to executors, and drops its pages; returns the freed bytes."""
        since = deferred.created if self.deferred is None else self.deferred.created
        self.deferred = msgspec.structs.replace(deferred, created=since)
        freed, self.bytes = self.bytes, 0
        self.pages.clear()
        return freed

    def take_back(self, undelivered: Position) -> int:
        """Takes a range back from executors, to read it in the driver; returns the freed bytes."""
        self.frontier = undelivered
        if self.first is not None and not isinstance(undelivered, AfterSequence):
            self.frontier = AtSequence(self.first)
        self.deferred = self.backlog = None
        self.read_until, self.idle_at = unread_since(self.tracked), -math.inf
        self.progressed_at = self._clock.monotonic()
        freed, self.bytes = self.bytes, 0
        self.pages.clear()
        return freed

    def split(self, page: BufferedPage, count: int) -> BufferedPage:
        """Splits a page in two; returns the first part, with `count` records."""
        head, tail = page.split(count)
        index = self.pages.index(page)
        self.pages[index] = head
        self.pages.insert(index + 1, tail)
        return head

    def pages_between(self, start: Position, upto: str | None) -> list[BufferedPage] | None:
        """Returns the pages of a range; None if not all are buffered."""
        if upto is None:
            return [] if self.reader is not None and self.has_ended and not self.pages else None
        end = int(upto)
        found = [each for each in self.pages if int(each.upto) <= end]
        whole = found and found[0].after == start and found[-1].upto == upto
        return found if whole else None


def unread_since(shard: TrackedShard) -> float:
    """Returns a creation time before which no unread record of a shard was made."""
    opened = opened_at(shard.id)
    since = -math.inf if opened is None else int(opened.timestamp())
    at = shard.position
    return max(since, at.time.timestamp()) if isinstance(at, AtTime) else since
