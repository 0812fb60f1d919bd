"""Reads open shards in the background of Spark's driver, and keeps the pages until they are due."""

from __future__ import annotations

import heapq
import itertools
import logging
import re
import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import datetime

import msgspec

from watcher.reading.lineage import Status, Tracked
from watcher.reading.messages import Finished, Loss, Message, Page, Trouble
from watcher.reading.shard_reader import ShardReader
from watcher.record import page as pages
from watcher.service.client import StreamsClient
from watcher.service.model import AfterSequence, Position, TrimHorizon
from watcher.spark.packed import Packed, pack

logger = logging.getLogger("watcher")

# Of packed pages. A task's go to its executor with it: 128 MB is Spark's limit, 16 leave room.
SHARD_BYTES = 16 * 1024 * 1024
BATCH_BYTES = 64 * 1024 * 1024
_THREADS = 8
_IDLE_PAUSE = 1.0
# One call takes some 5 ms of this one process: with many idle shards each waits longer.
_IDLE_PAUSE_A_SHARD = 0.01
_TROUBLES_BEFORE_WARNING = 5
_END_SECONDS = 2.0
# A number can't follow this anywhere but in a record itself; decoding takes 1,000 times longer.
_CREATED = re.compile(rb'"ApproximateCreationDateTime":\s*([0-9.eE+]+)')


class Slice(msgspec.Struct):
    """Records `first:last` of a page; `after` is the position before them."""

    page: Packed
    first: int
    last: int
    after: Position
    upto: str
    created: float
    """When its first record was made."""
    bytes: int
    """Its part of the packed page."""

    @property
    def count(self) -> int:
        """How many records it holds."""
        return self.last - self.first

    def split(self, count: int) -> tuple[Slice, Slice]:
        """Its first `count` records, and the others; they share the page's bytes."""
        records = pages.decode(self.page.body()).Records
        cut = self.first + count
        upto = records[cut - 1].dynamodb.SequenceNumber
        created = records[cut].dynamodb.ApproximateCreationDateTime or 0.0
        part = self.bytes * count // self.count
        head = Slice(self.page, self.first, cut, self.after, upto, self.created, part)
        rest = self.bytes - part
        tail = Slice(self.page, cut, self.last, AfterSequence(upto), self.upto, created, rest)
        return head, tail


class Shard:
    """A shard that is being read, or whose pages are not all delivered."""

    def __init__(self, tracked: Tracked, reader: ShardReader | None) -> None:
        self.tracked = tracked
        self.reader = reader
        """None for a closed shard that executors read themselves."""
        self.slices: deque[Slice] = deque()
        self.frontier = tracked.position
        self.bytes = 0
        self.attempted = False
        self.ended = reader is None
        """Nothing will follow: the shard is closed and read to its end."""
        self.caught_up = False
        """Everything up to the target time was read, and the reader has stopped there."""

    @property
    def has_ended(self) -> bool:
        """As `ended`, once the planner has seen it and knows of its children."""
        return self.tracked.status is Status.FINISHED

    @property
    def id(self) -> str:
        """The shard's id."""
        return self.tracked.id

    def covered(self, position: Position) -> int:
        """Forget what lies before a position, it is delivered; answer how many bytes it was."""
        freed = 0
        if isinstance(position, AfterSequence):
            number = int(position.sequence_number)
            while self.slices and int(self.slices[0].upto) <= number:
                freed += self.slices.popleft().bytes
        self.bytes -= freed
        return freed

    def between(self, start: Position, upto: str | None) -> list[Slice] | None:
        """The slices of a range; None where they are not here (any more)."""
        if upto is None:
            return [] if self.reader is not None and self.ended and not self.slices else None
        end = int(upto)
        found = [each for each in self.slices if int(each.upto) <= end]
        whole = found and found[0].after == start and found[-1].upto == upto
        return found if whole else None


class Background:
    """A few threads that read many shards, each when its turn has come.

    All state is under `lock`; `news` is signalled when something was read. What a thread can't
    bear is in `failure`, for the planner to raise.
    """

    def __init__(
        self, connect: Callable[[], StreamsClient], arn: str, lost: Callable[[Tracked, Loss], None]
    ) -> None:
        self.lock = threading.RLock()
        self.news = threading.Condition(self.lock)
        self.failure: BaseException | None = None
        self.shards: dict[str, Shard] = {}
        self._work = threading.Condition(self.lock)
        # A client for each thread: its shortcut's one connection can't be shared.
        self._connect = connect
        self._streams: StreamsClient = connect()
        self._arn = arn
        self._lost = lost
        self._due: list[tuple[float, int, Shard]] = []
        self._parked: list[Shard] = []
        self._order = itertools.count()
        self._threads: list[threading.Thread] = []
        self._bytes = 0
        self._stopped = False

    def add(self, tracked: Tracked, until: datetime | None) -> None:
        """Begin to read a shard."""
        reader = ShardReader(self._streams, self._arn, tracked.id, tracked.position, until=until)
        with self.lock:
            shard = self.shards[tracked.id] = Shard(tracked, reader)
            self._schedule(shard, 0.0)
            if len(self._threads) < min(_THREADS, len(self.shards)):
                name = f"reader {len(self._threads)}"
                # A daemon: Spark ends this process without a word.
                thread = threading.Thread(target=self._run, name=name, daemon=True)
                self._threads.append(thread)
                thread.start()

    def add_closed(self, tracked: Tracked) -> None:
        """Keep a closed shard in mind that executors read themselves."""
        with self.lock:
            self.shards[tracked.id] = Shard(tracked, None)

    def delivered(self, shard_id: str, position: Position) -> Shard | None:
        """Everything of a shard before this position is done with: there is room for more."""
        with self.lock:
            shard = self.shards.get(shard_id)
            if shard is not None and (freed := shard.covered(position)):
                self._bytes -= freed
                parked, self._parked = self._parked, []
                for each in parked:
                    self._schedule(each, 0.0)
            return shard

    def stop(self) -> None:
        """End the threads; one that is in a call may take until its answer."""
        with self.lock:
            self._stopped = True
            self._work.notify_all()
        for thread in self._threads:
            thread.join(_END_SECONDS)

    def _schedule(self, shard: Shard, pause: float) -> None:
        heapq.heappush(self._due, (time.monotonic() + pause, next(self._order), shard))
        self._work.notify()

    def _run(self) -> None:
        try:
            streams = self._connect()
            streams.take_shortcut(self._arn)
            while (shard := self._next()) is not None:
                assert shard.reader is not None
                shard.reader.streams = streams
                # Outside of the lock: the others read meanwhile.
                messages = [_packed(message) for message in shard.reader.read()]
                with self.lock:
                    for message in messages:
                        self._take(shard, message)
                    self._put_back(shard)
                    shard.attempted = True
                    self.news.notify_all()
        except BaseException as error:
            with self.lock:
                self.failure = self.failure or error
                self.news.notify_all()

    def _next(self) -> Shard | None:
        """The shard whose turn has come, when it has come; None at the end."""
        with self.lock:
            while not self._stopped:
                wait = self._due[0][0] - time.monotonic() if self._due else None
                if wait is not None and wait <= 0:
                    return heapq.heappop(self._due)[2]
                self._work.wait(wait)
        return None

    def _put_back(self, shard: Shard) -> None:
        assert shard.reader is not None
        if shard.reader.finished:
            return
        # Twice a micro-batch's: one is being worked on, the next is being read.
        if shard.bytes >= 2 * SHARD_BYTES or self._bytes >= 2 * BATCH_BYTES:
            self._parked.append(shard)
            return
        pause = shard.reader.pause
        if pause >= _IDLE_PAUSE:
            pause = max(pause, len(self.shards) * _IDLE_PAUSE_A_SHARD)
        self._schedule(shard, pause)

    def _take(self, shard: Shard, message: Slice | Message) -> None:
        match message:
            case Slice():
                message.after = shard.frontier
                shard.frontier = AfterSequence(message.upto)
                shard.slices.append(message)
                shard.bytes += message.bytes
                self._bytes += message.bytes
            case Finished(closed):
                shard.ended, shard.caught_up = closed, not closed
            case Loss():
                self._lost(shard.tracked, message)
            case Trouble(text, failures):
                if failures >= _TROUBLES_BEFORE_WARNING and failures.bit_count() == 1:
                    logger.warning(f"Shard {shard.id}: {failures} failures in a row: {text}")


def _packed(message: Message) -> Slice | Message:
    """A page as the slice to keep of it; what lies before it is for the shard to say."""
    if not isinstance(message, Page):
        return message
    found = _CREATED.search(message.body)
    created = float(found[1]) if found else 0.0
    page = pack(message.body)
    return Slice(
        page,
        message.first,
        message.last,
        TrimHorizon(),
        message.last_sequence_number,
        created,
        len(page.data),
    )
