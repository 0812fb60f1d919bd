"""Pulls a stream's records one by one, its shards merged by creation time."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import TypeAlias

import msgspec

from watcher.aws.lister import Lister
from watcher.aws.model import Listing, Position, Service, ShardKey
from watcher.aws.tables import ReadPace
from watcher.call_pool import CallPool
from watcher.clock import CLOCK, Clock
from watcher.errors import StreamGoneError
from watcher.pull.shard_pool import DEFAULTS, PooledShard, PullOptions, ShardPool
from watcher.pull.stream_successor import SuccessorSearch
from watcher.pull.table_snapshot import Items, TableSnapshot
from watcher.records.page import RecordPage
from watcher.records.record import Record
from watcher.records.redaction import Redaction
from watcher.records.wire import WireRecord
from watcher.streams import checkpoint_format
from watcher.streams.checkpoint_format import Token
from watcher.streams.lineage import TrackedShard
from watcher.streams.losses import Losses
from watcher.streams.messages import Page

_LISTING_PAGES = 2
"""The number of pages, of all streams, up to which a listing is worth a wait: four take 1 s."""
_LISTING_SECONDS = 1.0
"""The longest wait for a small listing; a later poll takes the answer of a slower one."""
POLL_SECONDS = 1.0
"""The longest poll during empty pages, which records may follow."""
_BUFFERED_BYTES = 64 * 1024 * 1024
"""The size of buffered pages at which reading pauses."""
_READS_AT_ONCE = 100
"""The largest number of reads side by side: more are no faster, and each costs a thread."""
PATIENT_SECONDS = 5.0
"""The longest wait for a stream's first reads, and for its only shard's."""
_CHANGES_BETWEEN_ITEMS = 1_000
"""The largest number of changes between two pages of a table's items: neither starves."""
_MOMENT_SECONDS = 0.05
"""The wait for a read of a shard that is most likely idle."""
_ALLOWED_SECONDS = 2.5
"""The longest wait for a throttled shard that may have more records."""
_LEAST_STEP_SECONDS = 0.01
"""The shortest wait: clocks are no finer."""
_STEP_SECONDS = 0.05
"""The longest time that a throttled shard delays other shards' records."""

_SortKey: TypeAlias = tuple[float, int, str]
"""A record's time, number and shard."""


class ShardBuffer(msgspec.Struct, eq=False):
    """The buffered records of a shard, not yet taken."""

    tracked: TrackedShard
    shard: PooledShard | None
    """None for a table's items, which come before all changes."""
    pages: Iterator[Page]
    """The pages behind `page`."""
    size_bytes: int
    """The size of the pages."""
    page: Page = Page(0, 0, "")
    records: RecordPage = RecordPage(b"", ShardKey("", ""), ())
    """Those of `page` …"""
    wire_records: Sequence[WireRecord] = ()
    taken: int = 0
    """… of which so many are taken, from the first on."""
    settled: int = 0
    """The number of those that the shard's position is behind."""

    def open(self, page: Page, arn: str) -> None:
        """Goes on to a page, once all records of the one before are taken."""
        self.page, self.records = page, page.opened(ShardKey(arn, self.tracked.id))
        self.wire_records = self.records.wire_records
        self.taken = self.settled = 0
        if not self.wire_records:  # a filter left out all of them
            self.tracked.move_behind(page.last_sequence_number, page.last_created)

    def settle(self) -> None:
        """Moves the shard's position behind the records taken, and those left out at the end."""
        if self.taken > self.settled:
            is_last = self.taken == len(self.wire_records)
            change = self.wire_records[self.taken - 1].dynamodb
            number, created = change.SequenceNumber, change.ApproximateCreationDateTime
            if is_last and number != self.page.last_sequence_number:
                number, created = self.page.last_sequence_number, self.page.last_created
            self.tracked.move_behind(number, created)
            self.settled = self.taken

    def created_at(self, place: int) -> float:
        """Returns the creation time (epoch seconds) of a record of the page."""
        if self.shard is None:
            return -math.inf
        return self.wire_records[place].dynamodb.ApproximateCreationDateTime or 0.0

    def sort_key(self, place: int) -> _SortKey:
        """Returns the sort key of a record of the page."""
        number = self.wire_records[place].dynamodb.SequenceNumber
        return self.created_at(place), int(number), self.tracked.id


_Entry: TypeAlias = tuple[_SortKey, ShardBuffer]
"""A shard's records, behind the sort key of the next one; during a run, of the run's first."""

_due_at = attrgetter("due_at")


class MergedShards:
    """Reads one stream, from a position or a token.

    `calls` makes the reads, which may run side by side. With `up_to_now` it ends once all records
    that existed at its start are read. The constructor reads once, so that "latest" means now.

    `items` come too, page by page in turn with the changes (see `table_snapshot`); with
    `only_restart` only where the token is too old to resume from. Raises StreamError,
    DataLossError.
    """

    def __init__(
        self,
        service: Service,
        arn: str,
        start: Position | Token,
        *,
        losses: Losses,
        calls: CallPool,
        clock: Clock = CLOCK,
        options: PullOptions = DEFAULTS,
        items: Items | None = None,
        only_restart: bool = False,
        redaction: Redaction | None = None,
    ) -> None:
        self.arn = arn
        self.left_out = 0
        """The number of records that a filter left out."""
        self._clock = clock
        self._service = service
        self._successor = SuccessorSearch(of_table=True, wait_seconds=math.inf, clock=clock)
        self._options = options
        self._size_bytes = 0
        self._drained: list[PooledShard] = []
        """Ended shards whose records were all taken; their children may start."""
        self._heap: list[_Entry] = []
        self._run: Iterator[Record] = iter(())
        """Gives out records of the heap's first shard; see `_next_run`."""
        self._pool = ShardPool(
            arn,
            start,
            service=service,
            losses=losses,
            calls=calls,
            clock=clock,
            options=options,
        )
        if calls.may_have_threads:
            # Available records must not wait for a listing, or for a shard that hangs.
            is_small = self.listing.pages * options.stream_count <= _LISTING_PAGES
            patience = _LISTING_SECONDS if is_small else 0.0
            self._pool.listing_service = Lister(service, patience=patience)
        restarts = self._pool.restarts_snapshot
        self._stored = None if items is None or not isinstance(start, Token) else start.snapshot
        """The progress of items that are not read."""
        self._items: TableSnapshot | None = None
        if items is not None and (restarts or not only_restart):
            self._items = TableSnapshot(
                arn,
                items,
                None if restarts else self._stored,
                clock,
                redaction=redaction,
                pace=ReadPace(options.read_limit, clock),
                calls=calls,
            )
        self._changes_left = 0
        """The number of changes before the next page of items."""
        # Gets iterators at once: "latest" means now, not the first poll.
        self.read_all()

    def start_reads(self) -> None:
        """Starts the first reads of the next `poll`, for callers that poll several streams."""
        if not (self._heap or self._awaits_items):
            self._finish_drained()
            self._start_due(at_once=False)

    def poll(self, *, at_once: bool = False) -> float | None:
        """Returns the creation time (epoch seconds) of the next record; None without one now.

        With `at_once` it reads all shards before it returns None, four times a second at most. An
        item comes before all changes.
        """
        if self._awaits_items:
            if self._changes_left > 0 and self._poll_shards(at_once=False) is not None:
                return self.next_at
            self._read_items()
        return self._poll_shards(at_once=at_once)

    def _poll_shards(self, *, at_once: bool) -> float | None:
        self._finish_drained()
        until = self._clock.monotonic() + POLL_SECONDS
        while not self._heap:
            self._read_due(at_once)
            # Records may follow an empty page.
            now = self._clock.monotonic()
            shards = self._pool.shards.values()
            more = any(each.may_have_more and each.allowed_at <= now for each in shards)
            if not self._heap and not (more and now < until):
                self._raise_if_replaced()
                return None
        return self.next_at

    @property
    def _awaits_items(self) -> bool:
        """True if a page of items is due, and every change from now on will be read too."""
        items = self._items
        if items is None or items.is_done or self.next_at == -math.inf:
            return False
        is_due = self._clock.monotonic() >= items.due_at
        return is_due and not self._pool.coordinator.lineage.awaits_latest

    def _read_items(self) -> None:
        assert self._items is not None
        page = self._items.read(has_ended=self._pool.coordinator.has_ended)
        if page is not None:
            self._changes_left = _CHANGES_BETWEEN_ITEMS + page.count
            self._put(ShardBuffer(self._items.shard, None, iter([page]), len(page.body)))

    def _raise_if_replaced(self) -> None:
        """Raises StreamGoneError once all of a stream is read that another one has replaced."""
        coordinator = self._pool.coordinator
        is_over = coordinator.is_over and not coordinator.lineage.unfinished
        if self._options.up_to_now or not (is_over and coordinator.confirm_exhausted()):
            return
        end = self._successor.search(self._service, coordinator)
        if end is not None:
            raise StreamGoneError(
                f"{self.arn} is {coordinator.ended_how}, and all of it is read; its table has "
                f"another stream: continue with {end.successor}, from the trim horizon"
            )

    def take(self) -> Record | None:
        """Returns the next record, read now if none is buffered; None when there is nothing now."""
        if self.next_at is not None or any(at is not None for at in self._polls()):
            return self.pop()
        return None

    def _polls(self) -> Iterator[float | None]:
        """Polls until there is nothing now; yields the time of the next record.

        A throttled shard that may have more records leaves that open: its next read is waited for.
        """
        yield self.poll()
        yield self.poll(at_once=True)
        until = self._clock.monotonic() + _ALLOWED_SECONDS
        while (wait := self._allowed_in) <= until - self._clock.monotonic():
            self._clock.sleep(min(max(wait, _LEAST_STEP_SECONDS), _STEP_SECONDS))
            yield self.poll()

    def pop(self) -> Record:
        """Returns the record that `poll` has found; the token moves behind it."""
        self._changes_left -= 1
        if (record := next(self._run, None)) is None:
            self._run = self._next_run()
            record = next(self._run)
        return record

    def _next_run(self) -> Iterator[Record]:
        """Yields the next records of one page: those that come before all of other shards.

        Only behind the last of them the heap is set right, and the position moves (the token moves
        it before that): for each record, both take longer than to make it.
        """
        _, buffer = self._heap[0]
        first, end = buffer.taken, self._end_of_run(buffer)
        for place, record in enumerate(buffer.records[first:end], first + 1):
            buffer.taken = place
            if place == end:
                try:
                    self._end_run()
                except BaseException:  # Ctrl-C, and the program may go on (a notebook)
                    self._repair(buffer, place)
                    raise
            yield record

    def _repair(self, buffer: ShardBuffer, place: int) -> None:
        """Makes the next call find a record after an interrupt: the same, if the token lacks it."""
        if self._heap and self._heap[0][1] is buffer and buffer.taken == place:
            if buffer.settled < place:
                buffer.taken -= 1
            else:
                self._end_run()

    def _end_of_run(self, buffer: ShardBuffer) -> int:
        """Returns the place of the page's first record that comes behind another shard's."""
        count, place = len(buffer.wire_records), buffer.taken + 1
        if len(self._heap) == 1:
            return count
        others, _ = min(self._heap[1:3])
        while place < count and buffer.sort_key(place) < others:
            place += 1
        return place

    def _end_run(self) -> None:
        """Sets the heap and the position right, behind a run or a part of it."""
        self._run = iter(())
        _, buffer = self._heap[0]
        buffer.settle()
        if self._has_next(buffer):
            heapq.heapreplace(self._heap, (buffer.sort_key(buffer.taken), buffer))
        else:
            heapq.heappop(self._heap)
            self._on_taken(buffer)

    def _settle(self) -> None:
        """Moves the position behind the records of the run that are taken."""
        if self._heap:
            self._heap[0][1].settle()

    def _has_next(self, buffer: ShardBuffer) -> bool:
        """Goes on to the next page that has records, where all of this one are taken.

        Returns False without one.
        """
        while buffer.taken == len(buffer.wire_records):
            if (page := next(buffer.pages, None)) is None:
                return False
            buffer.open(page, self.arn)
            self.left_out += page.left_out
        return True

    @property
    def next_at(self) -> float | None:
        """The creation time (epoch seconds) of the next record, if it is buffered."""
        if not self._heap:
            return None
        _, buffer = self._heap[0]
        return buffer.created_at(buffer.taken)

    @property
    def _allowed_in(self) -> float:
        """Seconds until the service allows a read of a shard that may have more; infinite: none."""
        shards = self._pool.shards.values()
        times = (shard.allowed_at for shard in shards if shard.awaits_rate_limit)
        return min(times, default=math.inf) - self._clock.monotonic()

    @property
    def listing(self) -> Listing:
        """The last listing of the stream."""
        return self._pool.listing

    def confirm_caught_up(self) -> bool:
        """True once all records that existed at the start are taken; only with `up_to_now`.

        Requests a listing where only that can tell, as `confirm_idle` does.
        """
        return self._pool.confirm_caught_up()

    def confirm_idle(self) -> bool:
        """True if the last reads found nothing more; records may still follow empty pages."""
        pool = self._pool
        if self._heap or pool.reading:
            return False
        shards = pool.shards.values()
        return all(each.reader.is_idle for each in shards) and pool.coordinator.confirm_exhausted()

    def rewind(self, firsts: Mapping[str, str]) -> None:
        """Moves the token back to these records of shards; see `Lineage.rewind`."""
        self._settle()
        self._pool.coordinator.lineage.rewind(firsts)

    @property
    def token(self) -> Token:
        """The positions behind the last record taken."""
        self._settle()
        coordinator = self._pool.coordinator
        token = checkpoint_format.make(
            coordinator.arn,
            coordinator.lineage,
            coordinator.listing.time,
            coordinator.began_at,
            coordinator.listing.created,
        )
        token.snapshot = self._stored if self._items is None else self._items.stored()
        return token

    def read_all(self) -> None:
        """Reads each shard without buffered records once, as long as there is room.

        It does not wait for slow answers, except for the one that defines a shard's "latest".
        """
        pool = self._pool
        pool.refresh()
        unread = pool.free()
        while unread and self._size_bytes < _BUFFERED_BYTES:
            pool.start_reads(unread[:_READS_AT_ONCE])
            del unread[:_READS_AT_ONCE]
            self._collect(self._reading_since(PATIENT_SECONDS), PATIENT_SECONDS)
            while waiting := [each for each in pool.reading.values() if not each.has_position]:
                self._collect(waiting, _MOMENT_SECONDS)

    def _read_due(self, at_once: bool) -> None:
        """Reads each shard without buffered records once, if it may have more or is due.

        It waits for the shards that may have more, and only a moment for the others (unless
        `at_once` can mean all of them) and for a slow read.
        """
        behind = self._start_due(at_once)
        is_crowd = self._shard_count > _READS_AT_ONCE
        if at_once and not is_crowd:
            behind = self._reading_since(POLL_SECONDS)
        is_alone = self._shard_count == 1
        self._collect(behind, PATIENT_SECONDS if is_alone else POLL_SECONDS)
        moment = _MOMENT_SECONDS / self._options.stream_count
        self._collect(self._pool.reading.values(), moment / 2 if is_crowd else moment)

    def _start_due(self, at_once: bool) -> list[PooledShard]:
        """Starts reads; returns those of shards that may have more.

        Busy shards get half the room.
        """
        pool = self._pool
        pool.refresh()
        now = self._clock.monotonic()
        free = pool.free()
        behind = sorted((each for each in free if each.may_have_more), key=_due_at)
        idle = (each for each in free if not each.may_have_more)
        due = [each for each in idle if (each.soonest_at if at_once else each.due_at) <= now]
        due.sort(key=_due_at)
        room = max(_READS_AT_ONCE - len(pool.reading), 0)
        behind = behind[:room] if self._size_bytes < _BUFFERED_BYTES else []
        room -= len(behind)
        busy = [each for each in due if now < each.busy_until][: (room + 1) // 2]
        due = list(dict.fromkeys(busy + due))[:room]
        # The read of a stream's only shard needs no thread.
        pool.start_reads(behind + due, inline=1 if self._shard_count == 1 else 0)
        return behind

    def _reading_since(self, seconds: float) -> list[PooledShard]:
        """Returns the shards whose read started within the last `seconds`."""
        since = self._clock.monotonic() - seconds
        return [each for each in self._pool.reading.values() if each.started_at > since]

    @property
    def _shard_count(self) -> int:
        """The approximate number of shards that are read side by side."""
        return len(self._pool.shards) * self._options.stream_count

    def _collect(self, shards: Iterable[PooledShard], seconds: float) -> None:
        """Buffers the records of reads that end within `seconds`."""
        for shard, found in self._pool.collect(shards, seconds):
            size_bytes = sum(len(page.body) for page in found)
            shard.is_held = True
            self._put(ShardBuffer(shard.tracked, shard, iter(found), size_bytes))
            self._finish_drained()

    def _put(self, buffer: ShardBuffer) -> None:
        if self._heap:
            self._end_run()  # the new records may come before the run's
        self._size_bytes += buffer.size_bytes
        if self._has_next(buffer):
            heapq.heappush(self._heap, (buffer.sort_key(0), buffer))
        else:
            self._on_taken(buffer)

    def _on_taken(self, buffer: ShardBuffer) -> None:
        """Frees the memory of a shard's records; the shard may be read again, or finished."""
        self._size_bytes -= buffer.size_bytes
        if (shard := buffer.shard) is not None:
            shard.is_held = False
            if shard.has_ended:
                self._drained.append(shard)

    def _finish_drained(self) -> None:
        """Finishes the ended shards, so that their children start."""
        while self._drained:
            shard = self._drained.pop()
            self._pool.finish(shard)
            self._pool.refresh()
