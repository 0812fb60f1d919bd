"""Finds the last changes of several streams, so that a watch (`--tail`) can begin with them."""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import timedelta

import msgspec

from watcher.aws.model import Listing, ShardKey
from watcher.call_pool import CallPool
from watcher.clock import CLOCK, Clock
from watcher.errors import CredentialsError, StreamError
from watcher.formatting.text import counted
from watcher.pull.merged_shards import MergedShards
from watcher.records.record import Record
from watcher.records.wire import WireRecord
from watcher.runtime.watched_stream import WatchedStream

logger = logging.getLogger("watcher")

# The wait between two looks for the last changes.
_TICK_SECONDS = 0.02
# Each window is many times the one before: little is read twice, and not much too early.
_WINDOWS = (timedelta(minutes=1), timedelta(minutes=15), timedelta(hours=4), None)


class _Place(msgspec.Struct, frozen=True, order=True):
    """The time of a change, and its shard and sequence number."""

    time: float
    """Epoch seconds; never before those of an earlier record in the same shard."""
    turn: int
    """The order of arrival, for changes of the same second."""
    shard_key: ShardKey
    number: str


class Tail:
    """The last `count` changes, by time, that pass the filter.

    `is_within` recognizes a change that existed when the tail was read; all others came later. The
    tail keeps the changes' places in memory, but no records.
    """

    def __init__(
        self,
        count: int,
        record_filter: Callable[[Record], bool] | None,
        is_ending: Callable[[], bool] = lambda: False,
        clock: Clock = CLOCK,
    ) -> None:
        self._count = count
        self._record_filter = record_filter
        self._is_ending = is_ending
        self._clock = clock
        self._places: list[_Place] = []
        self._turn = 0
        self._error: StreamError | None = None
        self._listings: dict[str, Listing] = {}
        """Each stream's listing, made once."""
        self._newest: dict[ShardKey, tuple[float, int]] = {}
        """The time and the sequence number of each shard's last change."""

    @property
    def found(self) -> int:
        """The number of changes found: `count`, or all that the streams hold."""
        return len(self._places)

    def is_within(self, shard_key: ShardKey, change: WireRecord) -> bool:
        """Returns True for a change that its shard held when the tail was read."""
        newest = self._newest.get(shard_key)
        return newest is not None and int(change.dynamodb.SequenceNumber) <= newest[1]

    def begin(self, streams: Iterable[WatchedStream]) -> None:
        """Sets the streams' start to the first of the changes, read in ever larger windows.

        Of several streams, one that can't be read keeps its own start. Raises StreamError.
        """
        streams = [*streams]
        for window in _WINDOWS:
            self._places, self._newest, self._error = [], {}, None
            with closing(CallPool()) as calls:
                readers = self._read(streams, window, calls)
            if self._is_ending():
                return
            is_whole = all(reader.confirm_caught_up() for reader in readers.values())
            if window is None or (is_whole and self.found >= self._count):
                break
        if self._error is not None and len(streams) == 1:
            raise self._error
        for each, reader in readers.items():
            reader.rewind(self._firsts(each.arn))
            each.resume(reader.token)
        logger.info(f"Beginning with the last {counted(self.found, 'change')}")

    def _read(
        self, streams: Sequence[WatchedStream], window: timedelta | None, calls: CallPool
    ) -> dict[WatchedStream, MergedShards]:
        """Returns readers of the readable streams, having read the `window` up to now."""
        readers: dict[WatchedStream, MergedShards] = {}
        for each in streams:
            if not self._is_ending():
                with self._may_fail(each, readers):
                    known = self._listings.get(each.arn)
                    readers[each] = each.merged_reader(window, calls, len(streams), known)
                    self._listings[each.arn] = readers[each].listing
        while not self._is_ending():
            unfinished = [
                each for each, reader in readers.items() if not reader.confirm_caught_up()
            ]
            # Too few changes: reading stops early, as the next window starts earlier anyway.
            is_too_short = window is not None and self.found < self._count
            if not unfinished or (
                is_too_short and all(readers[each].confirm_idle() for each in unfinished)
            ):
                break
            if not self._poll_readers(unfinished, readers):
                self._clock.sleep(_TICK_SECONDS)
        return readers

    def _poll_readers(
        self, unfinished: Sequence[WatchedStream], readers: dict[WatchedStream, MergedShards]
    ) -> bool:
        """Takes the new records of each reader, all read side by side; True if there were any."""
        has_records = False
        if len(unfinished) > 1:
            for each in unfinished:
                with self._may_fail(each, readers):
                    readers[each].start_reads()
        for each in unfinished:
            if (reader := readers.get(each)) is not None:
                with self._may_fail(each, readers):
                    reader.poll()
                    while reader.next_at is not None:
                        self._note(reader.pop())
                        has_records = True
        return has_records

    @contextmanager
    def _may_fail(
        self, stream: WatchedStream, readers: dict[WatchedStream, MergedShards]
    ) -> Iterator[None]:
        """Drops the reader of a stream that can't be read."""
        try:
            yield
        except CredentialsError:
            raise
        except StreamError as error:
            self._error = error
            readers.pop(stream, None)

    def _note(self, record: Record) -> None:
        created, number = record.created_at, int(record.sequence_number)
        before = self._newest.get(record.shard_key)
        time = 0.0 if created is None else created.timestamp()
        if before is not None:
            time = max(time, before[0])
        self._newest[record.shard_key] = time, number
        if self._record_filter is not None and not self._record_filter(record):
            return
        self._turn += 1
        place = _Place(time, self._turn, record.shard_key, record.sequence_number)
        if self.found < self._count:
            heapq.heappush(self._places, place)
        else:
            heapq.heappushpop(self._places, place)

    def _firsts(self, arn: str) -> dict[str, str]:
        """Returns the number of the first of these changes in each shard of a stream."""
        places = sorted(self._places, reverse=True)
        return {
            each.shard_key.shard_id: each.number for each in places if each.shard_key.stream == arn
        }
