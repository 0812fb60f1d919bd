"""Finds out whether a position is ahead of its stream, because that has started from scratch.

An emulator that restarts may keep its stream's ARN and creation time, and count from 1 again:
nothing follows the position, or only records that seem to be repeats. Such a stream holds lower
numbers and not the position's record, which AT_SEQUENCE_NUMBER returns everywhere else: also where
an iterator goes back a little (Alternator's), which then comes to it.
"""

from __future__ import annotations

from collections.abc import Callable

from watcher.aws.model import AtSequence, Position, TrimHorizon
from watcher.errors import ServiceError, StreamError, TrimmedDataError

_QUIET_LOOKS = 12
"""The number of looks in a row without a record that show that none follows; a few are normal."""
_PAGES = 4
"""The number of pages of a step, once there is a sign of a lower number."""
_LOOKS = 4
"""The number of looks without a sign of a lower number, after which none is expected soon."""
_MOST_LOOKS = 50
"""The number of looks after which an end of the shard no longer waits for the answer."""

REASON = "the stream has started from scratch, as an emulator may: its numbers are lower now"

GetIterator = Callable[[Position], str]
ReadNumbers = Callable[[str], tuple[list[int], str | None]]
"""Reads a page: returns its sequence numbers and the next iterator."""


class PositionCheck:
    """Looks for a position's record; most often the first page shows it."""

    def __init__(self, number: str) -> None:
        self._number = number
        self._iterator: str | None = None
        self._steps = self._looks = self._quiet = 0
        self._has_lower = False
        self.is_pending = True
        """True while an answer is likely to come soon."""

    def step(self, get_iterator: GetIterator, read: ReadNumbers) -> bool | None:
        """Returns True if the shard's numbers end below the position; None while that is open.

        Without a sign of that, only steps 1, 2, 4, 8 … make calls.
        """
        self._steps += 1
        if not self._has_lower and self._steps & (self._steps - 1):
            return None
        try:
            return self._step(get_iterator, read)
        except (ServiceError, StreamError) as error:
            if isinstance(error, TrimmedDataError) and self._iterator is None:
                return False  # its record is older than the retention: it was there
            self._iterator, self.is_pending = None, True
            return None

    def _step(self, get_iterator: GetIterator, read: ReadNumbers) -> bool | None:
        wanted = int(self._number)
        iterator = self._iterator or get_iterator(AtSequence(self._number))
        found: list[int] = []
        for _ in range(_PAGES):  # an iterator that goes back comes to it with a later one
            numbers, self._iterator = read(iterator)
            if any(each >= wanted for each in numbers):
                return False
            found += numbers
            if self._iterator is None or not (numbers or self._has_lower):
                break
            iterator = self._iterator
        self._has_lower |= bool(found)
        self._quiet = 0 if found else self._quiet + 1
        if self._iterator is None:  # a single answer of this kind is no end
            self._quiet += _QUIET_LOOKS // 2
        if not self._has_lower:
            numbers, horizon = read(get_iterator(TrimHorizon()))
            if not numbers and horizon is not None:  # an empty page says nothing
                numbers, _ = read(horizon)
            self._has_lower = any(each < wanted for each in numbers)
        self._looks += 1
        self.is_pending = self._looks < (_MOST_LOOKS if self._has_lower else _LOOKS)
        return True if self._has_lower and self._quiet >= _QUIET_LOOKS else None
