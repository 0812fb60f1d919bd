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
# Memory for 32,768 shards (3 MB); further shards are read, but not counted in this process.
_SLOTS = 32 * 1024
_FEW_SLOTS = 128


class Counters:
    """Counts API calls, throttles, and the records read of a shard.

    `SharedCounters` makes counters visible to other processes: counting takes no message, and a
    killed process's counts stay. Only one process at a time may write to them.
    """

    def __init__(
        self,
        cells: MutableSequence[float] | memoryview[float] | None = None,
        slot: int | None = None,
    ) -> None:
        # Doubles, which hold times, and integers exactly up to 2**53.
        self._cells = [0.0] * _SIZE if cells is None else cells
        self.slot = slot
        """Its place in the `SharedCounters`; None: in this process alone."""

    def call(self, operation: str, times: int = 1) -> None:
        """Counts a call of this API operation."""
        self._cells[_CELLS[operation]] += times

    def answer(self) -> None:
        """Counts a successful read."""
        self._cells[_ANSWERS] += 1

    def throttle(self) -> None:
        """Counts a throttled call."""
        self._cells[_THROTTLES] += 1

    def read(self, records: int) -> None:
        """Counts records that are about to be sent to the manager."""
        self._cells[_READ] += records

    def reach_tip(self, moment: float) -> None:
        """Notes that at this time (`time.monotonic()`) all available records were read."""
        self._cells[_TIP_READ] = self._cells[_READ]
        self._cells[_TIP_TIME] = moment

    def attempt(self, moment: float, *, answered: bool) -> None:
        """Notes that a read ended at this time (`time.monotonic()`), successfully or not."""
        self._cells[_TRIED_AT] = moment
        if answered:
            self._cells[_ANSWERED_AT] = moment

    def hand_on(self, delivered: int) -> None:
        """Prepares the counters for the shard's next worker, which continues from `delivered`."""
        if self._cells[_TIP_READ] > delivered:
            self._cells[_TIP_TIME] = 0.0
        self._cells[_READ] = delivered

    def add(self, others: Iterable[Counters]) -> None:
        """Adds the calls, answers and throttles of others."""
        rows = [counters._cells[: _THROTTLES + 1] for counters in (self, *others)]
        for cell, column in enumerate(zip(*rows, strict=True)):
            self._cells[cell] = sum(column)

    @property
    def calls(self) -> dict[str, int]:
        """The number of API calls by operation."""
        return {operation: int(self._cells[cell]) for operation, cell in _CELLS.items()}

    @property
    def answers(self) -> int:
        """The number of successful reads."""
        return int(self._cells[_ANSWERS])

    @property
    def throttles(self) -> int:
        """The number of throttled calls."""
        return int(self._cells[_THROTTLES])

    @property
    def tried_at(self) -> float:
        """The time of the last read's end, successful or not; 0 before the first."""
        return self._cells[_TRIED_AT]

    @property
    def answered_at(self) -> float:
        """The time of the last successful read's end; 0 before the first."""
        return self._cells[_ANSWERED_AT]

    @property
    def records_read(self) -> int:
        """The number of records sent to the manager, or about to be."""
        return int(self._cells[_READ])

    @property
    def tip(self) -> tuple[float, int] | None:
        """The last time (`time.monotonic()`) at which all records were read, and their number."""
        moment = self._cells[_TIP_TIME]
        return (moment, int(self._cells[_TIP_READ])) if moment else None


class SharedCounters:
    """Memory for counters that worker processes share, also those started earlier."""

    def __init__(self, slots: int = _SLOTS) -> None:
        self._memory: Any = b""
        self._slots = 0
        for count in (slots, _FEW_SLOTS):
            # The memory is a file: the system may limit its size, or have no room.
            with contextlib.suppress(OSError):
                self._memory, self._slots = RawArray("d", count * _SIZE), count
                break
        self._used = 0
        self._freed: list[int] = []

    def new(self) -> Counters:
        """Returns counters in a free slot; without one, counters of this process alone."""
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
        """Frees the slot of unused counters."""
        if counters.slot is not None:
            self.at(counters.slot)._cells[:] = memoryview(bytes(8 * _SIZE)).cast("d")
            self._freed.append(counters.slot)
