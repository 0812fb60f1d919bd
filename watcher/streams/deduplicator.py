"""Drops records that the service repeats, or that were created outside the requested time."""

from __future__ import annotations

import operator
from collections import deque
from datetime import datetime

from watcher.aws.model import AfterSequence, AtSequence, AtTime, Latest, Position
from watcher.errors import TransientError
from watcher.records.wire import WireRecord

_LATER_RECORDS = 1000
"""The number of records in a row after `end` that ends the reading.

A single one may have a wrong time.
"""
_REMEMBERED_NUMBERS = 1000
"""The number of remembered sequence numbers, about a page's."""

_SHOWN_DIGITS = 60  # the longest numbers that services give


class Deduplicator:
    """Passes each record of a shard once, if it was created within the requested time.

    An iterator may go back (after an error, or at another front end of the service), and an
    emulator may deliver a lower number late: only a number seen before is a repeat. Numbers are
    compared as integers. Those of the last pages are remembered; all below these count as seen.

    `end` is the latest creation time that passes; `skip_before` (epoch seconds) drops older
    records, up to the first newer one.
    """

    def __init__(self, position: Position, end: datetime | None = None) -> None:
        self.newest = -1
        """The number of the last record that came, or of the one to start after."""
        if isinstance(position, AfterSequence):
            self.newest = int(position.sequence_number)
        elif isinstance(position, AtSequence):
            self.newest = int(position.sequence_number) - 1
        self._passed = self.newest
        self._recent: deque[tuple[int, list[str]]] = deque()
        """The highest number, and all numbers, of each of the last pages."""
        self._recent_count = 0
        self._seen_through = self.newest  # all other numbers up to this one count as seen
        # Records with numbers below the first page's were written before the start.
        self._begins_at_first = isinstance(position, Latest | AtTime)
        self.skip_before: float | None = None
        self.late = 0
        """The number of the last page's records that belonged into an earlier page."""
        self.repeated = 0
        """The number of the last page's records that had come before."""
        self.repeats_in_a_row = 0
        """The number of successive pages that only repeated, without progress."""
        self.leads_back = False
        """True if a whole page repeated records already delivered."""
        self._end = None if end is None else end.timestamp()
        self._later = 0
        self._repeated_through = -1

    def rewind(self) -> None:
        """Prepares for a new iterator, which starts behind the passed records.

        Dropped records come again.
        """
        self.newest = self._passed

    @property
    def is_past_end(self) -> bool:
        """True if the last records are later than `end`: so many that it is no wrong time."""
        return self._later >= _LATER_RECORDS

    def through(self, records: list[WireRecord]) -> list[tuple[int, int]] | None:
        """Returns the parts `first:last` of a page that pass; None if it has to be sorted first.

        Raises TransientError for an invalid sequence number.
        """
        texts = _texts_of(records)
        if self._take_plain_page(texts):
            self._remember(texts, self.newest)
            return [(0, len(texts))]
        numbers = _numbers(texts)
        if any(map(operator.gt, numbers, numbers[1:])):
            return None
        newest = self.newest
        fresh = self._fresh(records, numbers)
        self.late = sum(numbers[place] < newest for place in fresh)
        self._note_repeats(numbers, len(fresh))
        parts: list[tuple[int, int]] = []
        for place in fresh:
            if not self._take_time(records[place]):
                continue
            self._passed = max(self._passed, numbers[place])
            if parts and parts[-1][1] == place:
                parts[-1] = parts[-1][0], place + 1
            else:
                parts.append((place, place + 1))
        self._remember(texts, max(numbers, default=0))
        return parts

    def _remember(self, texts: list[str], highest: int) -> None:
        """Remembers the numbers of the last pages, which tell a late record from a repeat."""
        if not texts:
            return
        if self._begins_at_first:
            self._begins_at_first = False
            self._seen_through = min(map(int, texts)) - 1
        self._recent.append((highest, texts))
        self._recent_count += len(texts)
        while self._recent_count - len(self._recent[0][1]) >= _REMEMBERED_NUMBERS:
            forgotten_highest, forgotten = self._recent.popleft()
            self._recent_count -= len(forgotten)
            self._seen_through = max(self._seen_through, forgotten_highest)

    def _take_plain_page(self, texts: list[str]) -> bool:
        """Handles a page of all new numbers in ascending order: a shortcut for nearly all pages."""
        if not texts or self.skip_before is not None or self._end is not None:
            return False
        # Numbers of equal length sort like their texts.
        is_plain = len(set(map(len, texts))) == 1 and _numbers(texts[:1])[0] > self.newest
        if not is_plain or not all(map(operator.lt, texts, texts[1:])):
            return False
        self.newest = self._passed = int(texts[-1])
        self.late = 0
        self._note_repeats([self.newest], 1)
        return True

    def _fresh(self, records: list[WireRecord], numbers: list[int]) -> list[int]:
        """Returns the indexes of the records that did not come before."""
        fresh: list[int] = []
        events: set[str | None] = set()  # of the last fresh number
        seen: set[int] | None = None
        for place, number in enumerate(numbers):
            event = records[place].eventID
            # Records of a page may share a number (changes of one batch, in ScyllaDB).
            if not (fresh and number == numbers[fresh[-1]] and event not in events):
                if number <= self.newest:
                    seen = self._recent_numbers() if seen is None else seen
                    is_seen = number <= self._seen_through or number in seen
                    if is_seen or number in {numbers[earlier] for earlier in fresh}:
                        continue
                events.clear()
            events.add(event)
            fresh.append(place)
            self.newest = max(self.newest, number)
        return fresh

    def _recent_numbers(self) -> set[int]:
        return {int(text) for _, texts in self._recent for text in texts}

    def _note_repeats(self, numbers: list[int], fresh: int) -> None:
        self.repeated = len(numbers) - fresh
        self.leads_back = bool(numbers) and not fresh and self.newest == self._passed
        if fresh or not numbers:
            self.repeats_in_a_row, self._repeated_through = 0, -1
        elif numbers[-1] > self._repeated_through:
            self.repeats_in_a_row, self._repeated_through = 0, numbers[-1]
        else:
            self.repeats_in_a_row += 1

    def _take_time(self, record: WireRecord) -> bool:
        """Handles a record's creation time; returns True if it is between the start and the end."""
        created = record.dynamodb.ApproximateCreationDateTime or 0.0
        if self.skip_before is not None:
            if created < self.skip_before:
                return False
            self.skip_before = None
        if self._end is not None and created > self._end:
            self._later += 1
            return False
        self._later = 0
        return True


def numbers_of(records: list[WireRecord]) -> list[int]:
    """Returns the records' sequence numbers. Raises TransientError for an invalid one."""
    return _numbers(_texts_of(records))


def _numbers(texts: list[str]) -> list[int]:
    try:
        return list(map(int, texts))
    except ValueError:  # more digits than Python's default limit
        raise _no_number(max(texts, key=len)) from None


def _texts_of(records: list[WireRecord]) -> list[str]:
    texts = [each.dynamodb.SequenceNumber for each in records]
    digits = "".join(texts)
    # On bytes, which takes a tenth of the time.
    if not all(texts) or (texts and not (digits.isascii() and digits.encode().isdigit())):
        raise _no_number(next(text for text in texts if not (text.isascii() and text.isdigit())))
    return texts


def sorted_places(records: list[WireRecord]) -> list[int]:
    """Returns the indexes of a page's records in the order of their numbers."""
    return sorted(range(len(records)), key=numbers_of(records).__getitem__)


def _no_number(text: str) -> TransientError:
    shown = f"{text[:_SHOWN_DIGITS]!r} ({len(text)} characters)"
    return TransientError(f"GetRecords: an answer with an invalid sequence number: {shown}")
