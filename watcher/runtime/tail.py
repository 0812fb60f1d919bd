"""The last changes of some streams: where a watch has to begin that is to show just them first."""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import timedelta

import msgspec

from watcher.aws.model import Listing, ShardKey
from watcher.clock import CLOCK, Clock
from watcher.errors import CredentialsError, StreamError
from watcher.formatting.text import counted
from watcher.pull.call_pool import CallPool
from watcher.pull.merged import MergedReader
from watcher.records.record import Record
from watcher.records.wire import WireRecord
from watcher.runtime.timing import LOOP_TIMING
from watcher.runtime.watched_stream import WatchedStream

logger = logging.getLogger("watcher")

# What is read twice is a small part of each, and what is read too much not many times the rest.
_WINDOWS = (timedelta(minutes=1), timedelta(minutes=15), timedelta(hours=4), None)


class _Place(msgspec.Struct, frozen=True, order=True):
    """A change: when it was made, and where it stands."""

    time: float
    """Epoch seconds; not before those of what precedes it in its shard."""
    turn: int
    """Of changes of the same second, the order in which they came."""
    shard_key: ShardKey
    number: str


class Tail:
    """The last `count` changes, by their time, of those that pass the filter.

    What there was up to the reading is known by its shard and number (`is_within`): all else came
    later. Only places are kept in memory, no records.
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
        """The time and the number of each shard's last change."""

    @property
    def found(self) -> int:
        """How many there are: `count`, or all that the streams hold."""
        return len(self._places)

    def is_within(self, shard_key: ShardKey, change: WireRecord) -> bool:
        """Returns True for a change that its shard held when the tail was read."""
        newest = self._newest.get(shard_key)
        return newest is not None and int(change.dynamodb.SequenceNumber) <= newest[1]

    def begin(self, streams: Iterable[WatchedStream]) -> None:
        """Have these streams begin at the first of the changes; ever more of them is read for it.

        Of several, one that can't be read now begins where it would without. Raises StreamError.
        """
        followed = [*streams]
        for window in _WINDOWS:
            self._places, self._newest, self._error = [], {}, None
            with closing(CallPool()) as calls:
                found = self._read(followed, window, calls)
            if self._is_ending():
                return
            is_whole = all(puller.has_caught_up for puller in found.values())
            if window is None or (is_whole and self.found >= self._count):
                break
        if self._error is not None and len(followed) == 1:
            raise self._error
        for each, puller in found.items():
            puller.rewind(self._firsts(each.arn))
            each.resume(puller.token)
        logger.info(f"Beginning with the last {counted(self.found, 'change')}")

    def _read(
        self, followed: Sequence[WatchedStream], window: timedelta | None, calls: CallPool
    ) -> dict[WatchedStream, MergedReader]:
        """Returns readers of the streams that can be read, from so long ago up to now."""
        found: dict[WatchedStream, MergedReader] = {}
        for each in followed:
            if not self._is_ending():
                with self._may_fail(each, found):
                    known = self._listings.get(each.arn)
                    found[each] = each.merged_reader(window, calls, len(followed), known)
                    self._listings[each.arn] = found[each].listing
        while not self._is_ending():
            left = [each for each, puller in found.items() if not puller.has_caught_up]
            # What seems to hold too little is read anew from before: it need not be certain.
            is_too_short = window is not None and self.found < self._count
            if not left or (is_too_short and all(found[each].is_idle for each in left)):
                break
            if not self._look(left, found):
                self._clock.sleep(LOOP_TIMING.tail_tick_seconds)
        return found

    def _look(
        self, left: Sequence[WatchedStream], found: dict[WatchedStream, MergedReader]
    ) -> bool:
        """Take what there is of each, all of them read side by side; whether there was any."""
        has_taken = False
        if len(left) > 1:
            for each in left:
                with self._may_fail(each, found):
                    found[each].start_reads()
        for each in left:
            if (puller := found.get(each)) is not None:
                with self._may_fail(each, found):
                    puller.poll()
                    while puller.next_at is not None:
                        self._note(puller.pop_buffered())
                        has_taken = True
        return has_taken

    @contextmanager
    def _may_fail(
        self, stream: WatchedStream, found: dict[WatchedStream, MergedReader]
    ) -> Iterator[None]:
        """Leaves out a stream that can't be read."""
        try:
            yield
        except CredentialsError:
            raise
        except StreamError as error:
            self._error = error
            found.pop(stream, None)

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
        """The first change of each shard of a stream that has one."""
        places = sorted(self._places, reverse=True)
        return {
            each.shard_key.shard_id: each.number for each in places if each.shard_key.stream == arn
        }
