"""Reads open shards ahead of the micro-batches: which is next, what is buffered, when it is full.

`ReadAhead` decides, without waiting or running by itself; `ReaderThreads` drives it.
"""

from __future__ import annotations

import heapq
import itertools
import math
import re
import threading
from array import array
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Protocol

import msgspec
import pyarrow as pa

from watcher.aws.model import AfterSequence, AtSequence, AtTime, Position, Service, opened_at
from watcher.clock import CLOCK, Clock
from watcher.pull import executor
from watcher.spark.deferred_range import BacklogDetector, DeferredRange
from watcher.spark.timing import LIMITS, TIMING, SourceLimits, Timing
from watcher.streams.lineage import ShardStatus, TrackedShard
from watcher.streams.messages import Finished, Message, Page, Retrying
from watcher.streams.shard_reader import ShardReader

# A page of 840 KB takes 0.2 ms to a tenth of its size, random text 0.6 ms to a half of it; each of
# the JVM's five copies of it costs more, and its garbage collector stumbles over large arrays.
_CODEC = "lz4"
# A number can't follow this anywhere but in a record itself; decoding takes 1,000 times longer.
_CREATED = re.compile(rb'"ApproximateCreationDateTime":\s*([0-9.eE+]+)')
_NUMBER = re.compile(rb'"SequenceNumber":\s*"([0-9]+)"')


class BufferedPage(msgspec.Struct, frozen=True):
    """A page, its body compressed."""

    packed: Page
    body_size: int
    """The body's own length."""
    after: Position
    """The position right before its first record."""
    created: float
    """The creation time of its first record; 0: not known."""
    last_created: float
    """The creation time of its last one."""
    size: int
    """Its share of the packed body, in bytes."""
    found_times: list[array[float]] = []
    """`times`, once they were asked for."""

    @classmethod
    def packed_from(cls, page: Page, after: Position, now: float = math.inf) -> BufferedPage:
        """Compresses a page. No record was made after `now`, whatever it says."""
        body = pa.compress(page.body, codec=_CODEC, asbytes=True)
        packed = msgspec.structs.replace(page, body=body)
        first = _CREATED.search(page.body)
        last = min(page.last_created or 0.0, now)
        created = min(float(first[1]), last) if first else 0.0
        made = cls(packed, len(page.body), after, created, last, len(body))
        # What is found first is of a record that was left out.
        return made if page.start == 0 else msgspec.structs.replace(made, created=made.times[0])

    def __reduce__(self) -> tuple[object, ...]:
        """An executor needs no times of records."""
        values = (self.packed, self.body_size, self.after, self.created, self.last_created)
        return BufferedPage, (*values, self.size)

    @property
    def times(self) -> array[float]:
        """Returns its records' creation times, none earlier than the one before."""
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
        """Returns the number of its last record."""
        return self.packed.last_sequence_number

    @property
    def count(self) -> int:
        """Returns how many records it holds."""
        return self.packed.count

    @property
    def json_size(self) -> int:
        """Returns its share of the body as it came, in bytes."""
        return self.size * self.body_size // max(1, len(self.packed.body))

    def page(self) -> Page:
        """Returns the page as it came."""
        body = pa.decompress(self.packed.body, self.body_size, codec=_CODEC, asbytes=True)
        return msgspec.structs.replace(self.packed, body=body)

    def split(self, count: int) -> tuple[BufferedPage, BufferedPage]:
        """Returns its first `count` records, and the others."""
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
"""A message of a shard's reader; in a page's place its buffered form, or a range to defer."""


class BufferedShard:
    """A shard that is being read, or whose pages are not all delivered."""

    def __init__(
        self,
        tracked: TrackedShard,
        catch_up_after: datetime | None,
        *,
        closed: bool = False,
        clock: Clock = CLOCK,
    ) -> None:
        self.tracked = tracked
        self.read_until = unread_since(tracked)
        """The creation time up to which it is read; what is unread is no older."""
        self.caught_up_at = -math.inf
        """When it was last found that there is nothing more, by this machine."""
        self.progressed_at = clock.monotonic()
        """When it was last read with success, or began to be read (again)."""
        self.tried_at = self.progressed_at
        """When it was last read, with whatever success."""
        self.rests = False
        """True if it is not read now: what is there of it is to be delivered first."""
        self.is_being_read = False
        """True from `ReadAhead.next` to `take`."""
        self._clock = clock
        self.closed = closed
        self.reader: ShardReader | None = None
        """None for a closed shard that executors read themselves."""
        self.catch_up_after = catch_up_after
        self.pages: deque[BufferedPage] = deque()
        self.frontier = tracked.position
        """The position from which nothing was read yet."""
        self.first: str | None = None
        """The number of its first record, where it is read from a position that is no record's."""
        self.bytes = 0
        self.attempted = False
        self.backlog: BacklogDetector | None = None
        """None where records have to be counted here."""
        self.deferred: DeferredRange | None = None
        """A range for executors; nothing is buffered or read while there is one."""

    @property
    def id(self) -> str:
        """Returns the shard's id."""
        return self.tracked.id

    @property
    def has_ended(self) -> bool:
        """True once nothing will follow: it is closed, and read to its end (or by executors)."""
        return self.tracked.status is ShardStatus.FINISHED

    @property
    def is_complete(self) -> bool:
        """True once it has nothing more for a query that stops at some moment."""
        return not self.pages and self.tracked.status in (
            ShardStatus.FINISHED,
            ShardStatus.LEFT_OPEN,
        )

    @property
    def for_executors(self) -> bool:
        """True where executors read something of it: what that is comes as a whole."""
        return self.reader is None or self.deferred is not None

    @property
    def since(self) -> float:
        """Returns a creation time before which nothing of it is undelivered."""
        if self.deferred is not None:
            return self.deferred.created
        return self.pages[0].created if self.pages else self.read_until

    def read(self, service: Service) -> list[ReaderEvent]:
        """Makes one attempt of its reader. Raises StreamError."""
        assert self.reader is not None
        self.reader.closed = self.closed
        reads, backlog = self.reader.reads, self.backlog
        messages, deferred = list[Message](), None
        if backlog is not None and backlog.awaits_turn:
            deferred = executor.run(backlog.find_end(reads), service)
            self.reader.pause = reads.pause()
        else:
            messages = executor.read(self.reader, service)
            self._note_first(messages)
            if backlog is not None and not self.reader.finished:
                deferred = executor.run(backlog.on_messages(messages, reads), service)
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
        """Drops what lies before a position; returns how many bytes that was."""
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
        """Drops what executors are to read instead; returns how many bytes that was."""
        since = deferred.created if self.deferred is None else self.deferred.created
        self.deferred = msgspec.structs.replace(deferred, created=since)
        freed, self.bytes = self.bytes, 0
        self.pages.clear()
        return freed

    def undefer(self, undelivered: Position) -> int:
        """Starts again, now without executors; returns how many bytes it dropped."""
        self.frontier = undelivered
        if self.first is not None and not isinstance(undelivered, AfterSequence):
            self.frontier = AtSequence(self.first)
        self.deferred = self.backlog = None
        self.tracked.status = ShardStatus.RUNNING
        self.read_until, self.caught_up_at = unread_since(self.tracked), -math.inf
        self.progressed_at = self._clock.monotonic()
        freed, self.bytes = self.bytes, 0
        self.pages.clear()
        return freed

    def split(self, page: BufferedPage, count: int) -> BufferedPage:
        """Splits a page in two; returns the first, which holds so many records."""
        head, tail = page.split(count)
        index = self.pages.index(page)
        self.pages[index] = head
        self.pages.insert(index + 1, tail)
        return head

    def pages_between(self, start: Position, upto: str | None) -> list[BufferedPage] | None:
        """Returns the pages of a range; None where they are not (all) buffered."""
        if upto is None:
            return [] if self.reader is not None and self.has_ended and not self.pages else None
        end = int(upto)
        found = [each for each in self.pages if int(each.upto) <= end]
        whole = found and found[0].after == start and found[-1].upto == upto
        return found if whole else None


class ReadAhead:
    """The shards that are read, or of which something is buffered.

    `events` are the readers' messages, pages included, in their order: they are to be handled
    before a page is given out that came after them.
    """

    def __init__(
        self,
        arn: str,
        clock: Clock,
        *,
        timing: Timing = TIMING,
        limits: SourceLimits = LIMITS,
    ) -> None:
        self.shards: dict[str, BufferedShard] = {}
        self.events: deque[tuple[BufferedShard, ReaderEvent]] = deque()
        self.failure: BaseException | None = None
        """The error that has ended the reading."""
        self._arn = arn
        self._clock = clock
        self._timing = timing
        self.limits = limits
        self._due: list[tuple[float, int, BufferedShard]] = []
        self._parked: list[BufferedShard] = []
        self._order = itertools.count()
        self._bytes = 0

    def add(
        self,
        tracked: TrackedShard,
        catch_up_after: datetime | None,
        *,
        closed: bool = False,
        may_defer: bool = False,
    ) -> None:
        """Starts to read a shard; with `may_defer`, executors read a backlog."""
        shard = BufferedShard(tracked, catch_up_after, closed=closed, clock=self._clock)
        self.shards[tracked.id] = shard
        if may_defer:
            shard.backlog = BacklogDetector(self._arn, shard.id, self._timing, self._clock)
        self.start_reader(shard)

    def add_closed(self, tracked: TrackedShard) -> None:
        """Adds a closed shard that executors read themselves."""
        self.shards[tracked.id] = BufferedShard(tracked, None, closed=True)

    def start_reader(self, shard: BufferedShard, pause: float = 0.0) -> None:
        """Starts a new reader where the shard's last one has come to."""
        rate = None if shard.reader is None else shard.reader.reads.rate
        shard.reader = ShardReader(
            self._arn,
            shard.id,
            shard.frontier,
            closed=shard.closed,
            catch_up_after=shard.catch_up_after,
            clock=self._clock,
            # An executor reads a backlog's next page.
            prefetches=shard.backlog is None,
            rate=rate,
        )
        self._schedule(shard, max(pause, shard.reader.reads.pause()))

    def read_here(self, shard: BufferedShard, undelivered: Position) -> None:
        """Reads a shard that was left to executors; they would read more than may be delivered.

        It must not be being read just now.
        """
        self._due = [each for each in self._due if each[2] is not shard]
        heapq.heapify(self._due)
        self._parked = [each for each in self._parked if each is not shard]
        freed = shard.undefer(undelivered)
        self.start_reader(shard)
        self._make_room(freed)

    def delivered(self, shard: BufferedShard, position: Position) -> bool:
        """Notes that all before this position is delivered; returns True where more is to read."""
        waited = shard.rests and shard.deferred is not None and shard.deferred.ends_now
        freed = shard.drop_delivered(position)
        if goes_on := waited and shard.deferred is None:
            shard.progressed_at = self._clock.monotonic()
            self.start_reader(shard)
        self._make_room(freed)
        return freed > 0 or goes_on

    def _make_room(self, freed: int) -> None:
        if freed:
            self._bytes -= freed
            parked, self._parked = self._parked, []
            for each in parked:
                assert each.reader is not None
                each.progressed_at = self._clock.monotonic()
                self._schedule(each, each.reader.reads.pause())

    # Which shard is next

    def seconds_until_due(self) -> float:
        """Returns the seconds until the next shard's turn; none or less where it has come."""
        return self._due[0][0] - self._clock.monotonic() if self._due else math.inf

    def next(self) -> BufferedShard | None:
        """Returns the shard whose turn has come; it gets no other before `take`."""
        if self.seconds_until_due() > 0:
            return None
        shard = heapq.heappop(self._due)[2]
        shard.is_being_read = True
        return shard

    def take(self, shard: BufferedShard, events: list[ReaderEvent]) -> None:
        """Takes in what one read of a shard has brought."""
        assert shard.reader is not None
        for each in events:
            if isinstance(each, BufferedPage):
                shard.pages.append(each)
                shard.bytes += each.size
                self._bytes += each.size
                shard.read_until = max(shard.read_until, each.last_created)
            if isinstance(each, DeferredRange):
                self._make_room(shard.defer(each))
                shard.read_until = max(shard.read_until, each.upto_created)
            self.events.append((shard, each))
        if shard.reader.caught_up and not shard.closed:
            shard.caught_up_at = self._clock.time()
        shard.tried_at = self._clock.monotonic()
        if not any(map(_is_refusal, events)):
            shard.progressed_at = shard.tried_at
        shard.attempted, shard.is_being_read = True, False
        if not (events and isinstance(events[-1], DeferredRange)):
            self._put_back(shard)
        elif events[-1].ends_now:
            shard.rests, shard.caught_up_at = True, self._clock.time()
        else:  # what comes behind it is not of now, either
            self.start_reader(shard)

    def step(self, service: Service) -> bool:
        """Reads the shard whose turn has come; returns False where none has. Raises StreamError."""
        shard = self.next()
        if shard is not None:
            self.take(shard, shard.read(service))
        return shard is not None

    def _put_back(self, shard: BufferedShard) -> None:
        assert shard.reader is not None
        if shard.reader.finished:
            return
        # Twice a micro-batch's: one is being worked on, the next is being read. The others may have
        # to wait for one of which there is nothing: that is read on.
        limits = self.limits
        is_full = self._bytes >= 2 * limits.batch_bytes and shard.pages
        if is_full or shard.bytes >= 2 * limits.shard_bytes:
            shard.rests = True
            self._parked.append(shard)
            return
        pause = shard.reader.pause
        if pause >= self._timing.idle_poll_seconds:
            pause = max(pause, len(self.shards) * self._timing.idle_poll_per_shard_seconds)
        self._schedule(shard, pause)

    def _schedule(self, shard: BufferedShard, pause: float) -> None:
        shard.rests = False
        heapq.heappush(self._due, (self._clock.monotonic() + pause, next(self._order), shard))


def _is_refusal(event: ReaderEvent) -> bool:
    return isinstance(event, Retrying) or (isinstance(event, Finished) and event.gone is not None)


def unread_since(shard: TrackedShard) -> float:
    """Returns a creation time before which no unread record of a shard was made."""
    opened = opened_at(shard.id)
    since = -math.inf if opened is None else int(opened.timestamp())
    at = shard.position
    return max(since, at.time.timestamp()) if isinstance(at, AtTime) else since


class ReadAheadDriver(Protocol):
    """Steps a read-ahead."""

    ahead: ReadAhead

    @property
    def lock(self) -> AbstractContextManager[object]:
        """Returns the lock under which the read-ahead is looked at and changed."""

    def wake(self) -> None:
        """Notes that there is more to read now, or soon; the lock is held."""

    def wait(self, seconds: float) -> None:
        """Waits until something was read, or so long; the lock is held. May raise StreamError."""

    def stop(self) -> None:
        """Ends the reading."""


class ReaderThreads:
    """Drives a read-ahead with a few threads.

    `connect` makes a client for each of them: a shortcut's one connection can't be shared.
    """

    def __init__(
        self, ahead: ReadAhead, connect: Callable[[], Service], timing: Timing = TIMING
    ) -> None:
        self.ahead = ahead
        self.lock = threading.RLock()
        self._has_read = threading.Condition(self.lock)
        self._work = threading.Condition(self.lock)
        self._connect = connect
        self._timing = timing
        self._threads: list[threading.Thread] = []
        self._stopped = False

    def wake(self) -> None:
        """Wakes the threads that wait; starts one more where there are shards enough."""
        self._work.notify_all()
        if len(self._threads) < min(self.ahead.limits.threads, len(self.ahead.shards)):
            name = f"reader {len(self._threads)}"
            # A daemon: Spark ends this process without a word.
            thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def wait(self, seconds: float) -> None:
        """Waits until something was read, or so long."""
        self._has_read.wait(seconds)

    def stop(self) -> None:
        """Ends the threads; one that is in a call may take until its answer."""
        with self.lock:
            self._stopped = True
            self._work.notify_all()
        for thread in self._threads:
            thread.join(self._timing.thread_stop_seconds)

    def _run(self) -> None:
        try:
            service = self._connect()
            while (shard := self._next()) is not None:
                events = shard.read(service)  # outside of the lock: the others read meanwhile
                with self.lock:
                    self.ahead.take(shard, events)
                    self._work.notify()
                    self._has_read.notify_all()
        except BaseException as error:
            with self.lock:
                self.ahead.failure = self.ahead.failure or error
                self._has_read.notify_all()

    def _next(self) -> BufferedShard | None:
        """Waits for the next shard's turn, and returns that shard; None at the end."""
        with self.lock:
            while not self._stopped:
                if (shard := self.ahead.next()) is not None:
                    return shard
                seconds = self.ahead.seconds_until_due()
                self._work.wait(None if seconds == math.inf else seconds)
        return None
