"""Finds the last changes of several streams, so that a watch (`--tail`) can begin with them."""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta

import msgspec

from watcher.aws.model import AtTime, Position, ShardKey, TrimHorizon
from watcher.call_pool import CallPool
from watcher.clock import CLOCK, Clock
from watcher.errors import StreamError
from watcher.formatting.text import counted
from watcher.pull.merged_shards import MergedShards
from watcher.pull.shard_pool import PullOptions
from watcher.records.record import Record
from watcher.records.wire import WireRecord
from watcher.runtime.watched_stream import WatchedStream
from watcher.streams.losses import Losses

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
        watched = {each.arn: each for each in streams}
        for window in _WINDOWS:
            self._places, self._newest = [], {}
            with closing(CallPool()) as calls:
                readers = self._read(watched, window, calls)
            if not readers:
                return  # none can be read: the watch says so at their start
            if self._is_ending():
                return
            is_whole = all(reader.confirm_caught_up() for reader in readers)
            if window is None or (is_whole and self.found >= self._count):
                break
        for reader in readers:
            reader.rewind(self._firsts(reader.arn))
            watched[reader.arn].resume(reader.token)
        logger.info(f"Beginning with the last {counted(self.found, 'change')}")

    def _read(
        self, watched: Mapping[str, WatchedStream], window: timedelta | None, calls: CallPool
    ) -> list[MergedShards]:
        """Returns readers of the readable streams, having read the `window` up to now."""
        start: Position = TrimHorizon()
        if window is not None:
            start = AtTime(datetime.fromtimestamp(int(self._clock.time()), UTC) - window)
        options = PullOptions(stream_count=len(watched), up_to_now=True)
        readers: dict[str, MergedShards] = {}
        for arn, each in watched.items():
            with self._left_out_if_refused(each, readers, watched):
                readers[arn] = MergedShards(
                    each.first_service,
                    arn,
                    start,
                    losses=Losses(clock=self._clock),  # the watch itself reports them
                    calls=calls,
                    clock=self._clock,
                    options=options,
                )
        while True:
            unfinished = [each for each in readers.values() if not each.confirm_caught_up()]
            # Too few changes: reading stops early, as the next window starts earlier anyway.
            is_too_short = window is not None and self.found < self._count
            is_idle = is_too_short and all(each.confirm_idle() for each in unfinished)
            if not unfinished or is_idle or self._is_ending():
                return [*readers.values()]
            # All start their reads before one of them waits for an answer.
            for step in (MergedShards.start_reads, MergedShards.poll):
                for arn in list(readers):
                    with self._left_out_if_refused(watched[arn], readers, watched):
                        step(readers[arn])
            if not any(self._take(reader) for reader in readers.values()):
                self._clock.sleep(_TICK_SECONDS)

    @staticmethod
    @contextmanager
    def _left_out_if_refused(
        stream: WatchedStream, readers: dict[str, MergedShards], watched: Collection[str]
    ) -> Iterator[None]:
        """Leaves out one of several streams that can't be read. Raises StreamError without any."""
        try:
            yield
        except StreamError as error:
            readers.pop(stream.arn, None)
            if len(watched) == 1:
                raise
            stream.retry.on_error(stream.arn, error)

    def _take(self, reader: MergedShards) -> bool:
        """Notes the records that a reader has; returns False without one."""
        has_some = reader.next_at is not None
        while reader.next_at is not None:
            self._note(reader.pop())
        return has_some

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
