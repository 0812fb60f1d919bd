"""Finds out whether a position is ahead of its stream, because that has started from scratch.

An emulator that restarts may keep its stream's ARN and creation time, and count from 1 again:
nothing follows the position, or records that seem to be repeats, or later ones as soon as the
numbers overtake it. Such a stream holds lower numbers and not the position's record, which
AT_SEQUENCE_NUMBER returns everywhere else: also where an iterator goes back a little
(Alternator's), which then comes to it.
"""

from __future__ import annotations

from watcher.aws.model import AfterSequence, AtSequence, Position, Service, TrimHorizon
from watcher.errors import ServiceError, StreamError, TransientError, TrimmedDataError
from watcher.records import page
from watcher.records.wire import WireRecord
from watcher.streams.deduplicator import numbers_of
from watcher.streams.read_rate import PageFetcher

_QUIET_LOOKS = 40
"""The number of looks in a row without a record that show that none follows.

They are more than the empty pages that a quiet day may have (see `EndDetector`).
"""
_PASSING_LOOKS = 2
"""The number of looks with later records alone that show that the position's record is missing."""
_PAGES = 4
"""The largest number of pages of a look."""
_LOOKS = 4
"""The number of looks without a sign of a lower number, after which none is expected soon."""
_MOST_LOOKS = 90
"""The number of looks after which nothing waits for the answer any longer."""

REASON = "the stream has started from scratch, as an emulator may: its numbers are lower now"


class PositionCheck:
    """Looks for the record of a shard's position while that is in doubt.

    Most often the first page shows it. After a failure (`is_broken`) records wait for that.
    """

    def __init__(self, arn: str, shard_id: str, reads: PageFetcher) -> None:
        self._shard = arn, shard_id
        self._reads = reads
        self.waits = False
        """True if the next step takes the place of a read, as the service throttles these."""
        self._identity: tuple[str, str | None, float | None] | None = None
        self._answer(is_confirmed=False)

    def _answer(self, *, is_confirmed: bool) -> None:
        self._number: str | None = None  # None: there is no doubt
        self._is_confirmed = is_confirmed
        self._is_broken = self._has_lower = False
        self._iterator: str | None = None
        self._horizon: str | None = None
        self._asks_horizon = False
        self._steps = self._looks = self._quiet = self._passing = 0
        self.is_pending = False
        """True while there is a doubt, and an answer is likely to come soon."""

    def doubt(self, position: Position, *, is_broken: bool = False) -> None:
        """Begins to look for the position's record, unless that was just found."""
        if is_broken:
            # While records wait, no further failure prolongs that: they might wait for ever.
            if not (self._is_broken and self.is_pending):
                self._steps = self._looks = 0
            self._is_broken, self._is_confirmed = True, False
        if self._is_confirmed or not isinstance(position, AtSequence | AfterSequence):
            return
        if self._number is None:
            self._number, self.is_pending = position.sequence_number, True
        self.is_pending |= is_broken

    def on_record(self, record: WireRecord) -> None:
        """Notes the record that the position is behind: by its number alone it may be another."""
        self._identity = _identity(record)

    def expect(self, number: str, created: float) -> None:
        """Notes the creation time of the record that the position is behind."""
        self._identity = number, None, created

    def holds(self, records: list[WireRecord]) -> bool:
        """True if these have to wait for an answer."""
        return self._is_broken and self.is_pending and bool(records)

    def on_page(self, *, has_news: bool) -> bool:
        """Notes a page of the reading; returns True if the next step is due."""
        self._is_confirmed = False
        if has_news:
            self._answer(is_confirmed=False)
        return self._number is not None

    def step(self, service: Service) -> bool:
        """Returns True if the shard's numbers are another stream's.

        Without a sign of that, and if nothing waits, only steps 1, 2, 4, 8 … make calls.
        """
        self.waits = False
        self._steps += 1
        is_urgent = self._has_lower or (self._is_broken and self.is_pending)
        if self._number is None or (not is_urgent and self._steps & (self._steps - 1)):
            return False
        is_passing = False
        try:
            for _ in range(_PAGES):
                is_other, goes_on = self._read(self._number, service)
                if is_other is not None or not goes_on or self._reads.rate.delay() > 0:
                    break
        except (ServiceError, StreamError) as error:
            # Its record is older than the retention: it was there.
            is_old = isinstance(error, TrimmedDataError) and self._iterator is None
            is_other = False if is_old else None
            self._iterator = self._horizon = None
            is_passing = isinstance(error, TransientError)
        self._looks += 1
        few = _QUIET_LOOKS if self._is_broken else _LOOKS
        is_near = self._has_lower or self._passing or is_passing
        self.is_pending = self._looks < (_MOST_LOOKS if is_near else few)
        if is_other is not None:
            self._answer(is_confirmed=True)
        return bool(is_other)

    def _read(self, number: str, service: Service) -> tuple[bool | None, bool]:
        """Reads a page; returns the answer, and whether this look needs another page."""
        wanted = int(number)
        if self._asks_horizon:
            records, following = self._page(self._horizon, TrimHorizon(), service)
            was_second = self._horizon is not None and not self._passing
            self._horizon = None if records or was_second else following
            self._asks_horizon = self._horizon is not None  # an empty page says nothing
            self._has_lower = any(each < wanted for each in numbers_of(records))
            return self._found(), self._asks_horizon
        records, self._iterator = self._page(self._iterator, AtSequence(number), service)
        numbers = numbers_of(records)
        if wanted in numbers:
            return self._is_another(records[numbers.index(wanted)]), False
        self._quiet = 0 if numbers else self._quiet + 1
        has_passed = max(numbers, default=0) > wanted
        if has_passed:
            self._passing, self._iterator = self._passing + 1, None
        self._has_lower |= any(each < wanted for each in numbers)
        self._asks_horizon = not self._has_lower
        # An iterator that goes back comes to it with a later page.
        has_more = bool(numbers) and self._iterator is not None
        return self._found(), has_more or self._asks_horizon

    def _found(self) -> bool | None:
        if self._passing >= _PASSING_LOOKS and not self._asks_horizon:
            return self._has_lower  # else its record has left the shard unsaid, as the oldest do
        return True if self._has_lower and self._quiet >= _QUIET_LOOKS else None

    def _page(
        self, iterator: str | None, position: Position, service: Service
    ) -> tuple[list[WireRecord], str | None]:
        iterator = iterator or service.get_iterator(*self._shard, position)[0]
        wire = page.decode(self._reads.fetch_at(iterator, service))
        return wire.Records, wire.NextShardIterator

    def _is_another(self, record: WireRecord) -> bool:
        number, event, created = _identity(record)
        known = self._identity
        return (
            known is not None and known[0] == number and known[1] != event and known[2] != created
        )


def _identity(record: WireRecord) -> tuple[str, str | None, float | None]:
    change = record.dynamodb
    return change.SequenceNumber, record.eventID, change.ApproximateCreationDateTime
