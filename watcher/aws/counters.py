"""Counters of API calls and records that another process can read at any time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, MutableSequence
from multiprocessing.sharedctypes import RawArray
from typing import Any

OPERATIONS = (
    "DescribeTable",
    "ListTagsOfResource",
    "ListStreams",
    "DescribeStream",
    "GetShardIterator",
    "GetRecords",
)

_CELLS = {operation: cell for cell, operation in enumerate(OPERATIONS)}
_ANSWERS, _THROTTLES, _READ, _TIP_TIME, _TIP_READ, _TRIED_AT, _ANSWERED_AT = range(
    len(OPERATIONS), len(OPERATIONS) + 7
)
_SIZE = _ANSWERED_AT + 1
# More shards than this are read as well; what their workers count is then not seen here. (3 MB)
_SLOTS = 32 * 1024
_FEW_SLOTS = 128


class Counters:
    """API calls and throttles, and how far a shard was read.

    Counters in `SharedCounters` are visible to other processes: counting costs no message, and what
    a killed process has counted stays. Only one process at a time may count into it.
    """

    def __init__(
        self,
        cells: MutableSequence[float] | memoryview[float] | None = None,
        slot: int | None = None,
    ) -> None:
        # Doubles: whole numbers are exact up to 2**53, and times fit in.
        self._cells = [0.0] * _SIZE if cells is None else cells
        self.slot = slot
        """Where it lies on its board, if on one."""

    def call(self, operation: str, times: int = 1) -> None:
        """Count a call of this API operation."""
        self._cells[_CELLS[operation]] += times

    def answer(self) -> None:
        """Count a read that was answered as it should be."""
        self._cells[_ANSWERS] += 1

    def throttle(self) -> None:
        """Count a call that the service has throttled."""
        self._cells[_THROTTLES] += 1

    def read(self, records: int) -> None:
        """Count records that are about to be handed over."""
        self._cells[_READ] += records

    def reach_tip(self, moment: float) -> None:
        """Note that at this moment (`time.monotonic()`) all there was had been read."""
        self._cells[_TIP_READ] = self._cells[_READ]
        self._cells[_TIP_TIME] = moment

    def attempt(self, moment: float, *, answered: bool) -> None:
        """Note that at this moment (`time.monotonic()`) a read has ended, well or not."""
        self._cells[_TRIED_AT] = moment
        if answered:
            self._cells[_ANSWERED_AT] = moment

    def hand_on(self, delivered: int) -> None:
        """Lets the shard's next worker continue these counters, from what is delivered on."""
        if self._cells[_TIP_READ] > delivered:
            self._cells[_TIP_TIME] = 0.0
        self._cells[_READ] = delivered

    def add(self, others: Iterable[Counters]) -> None:
        """Count the calls, answers and throttles of others as well."""
        rows = [counters._cells[: _THROTTLES + 1] for counters in (self, *others)]
        for cell, column in enumerate(zip(*rows, strict=True)):
            self._cells[cell] = sum(column)

    @property
    def calls(self) -> dict[str, int]:
        """API calls by operation."""
        return {operation: int(self._cells[cell]) for operation, cell in _CELLS.items()}

    @property
    def answers(self) -> int:
        """How many reads were answered as they should be."""
        return int(self._cells[_ANSWERS])

    @property
    def throttles(self) -> int:
        """How many calls the service has throttled."""
        return int(self._cells[_THROTTLES])

    @property
    def tried_at(self) -> float:
        """When the last read has ended, well or not; 0 before the first."""
        return self._cells[_TRIED_AT]

    @property
    def answered_at(self) -> float:
        """When the last read that was answered has ended; 0 before the first."""
        return self._cells[_ANSWERED_AT]

    @property
    def records_read(self) -> int:
        """How many records were handed over, or are about to be."""
        return int(self._cells[_READ])

    @property
    def tip(self) -> tuple[float, int] | None:
        """When all there was had last been read (`time.monotonic()`), and how many records."""
        moment = self._cells[_TIP_TIME]
        return (moment, int(self._cells[_TIP_READ])) if moment else None


class SharedCounters:
    """Memory for counters that child processes share, also those started before a shard's began."""

    def __init__(self, slots: int = _SLOTS) -> None:
        self._memory: Any = b""
        self._slots = 0
        for count in (slots, _FEW_SLOTS):
            # It is a file to the system: there may be a limit on their size, or no room.
            with contextlib.suppress(OSError):
                self._memory, self._slots = RawArray("d", count * _SIZE), count
                break
        self._used = 0
        self._freed: list[int] = []

    def new(self) -> Counters:
        """Returns counters in a free slot; without one, counters that only this process sees."""
        if self._freed:
            return self.at(self._freed.pop())
        if self._used == self._slots:
            return Counters()
        self._used += 1
        return self.at(self._used - 1)

    def at(self, slot: int | None) -> Counters:
        """Returns the counters in this slot."""
        if slot is None:
            return Counters()
        cells = memoryview(self._memory).cast("B").cast("d")
        return Counters(cells[slot * _SIZE : (slot + 1) * _SIZE], slot)

    def free(self, counters: Counters) -> None:
        """Frees the slot of counters that are no longer in use."""
        if counters.slot is not None:
            self.at(counters.slot)._cells[:] = memoryview(bytes(8 * _SIZE)).cast("d")
            self._freed.append(counters.slot)
