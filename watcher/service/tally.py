"""What one process counts of its own work, where another process can read it at any time."""

from __future__ import annotations

from collections.abc import Iterable, MutableSequence
from multiprocessing.sharedctypes import RawArray

OPERATIONS = (
    "DescribeTable",
    "ListTagsOfResource",
    "ListStreams",
    "DescribeStream",
    "GetShardIterator",
    "GetRecords",
)

_CELLS = {operation: cell for cell, operation in enumerate(OPERATIONS)}
_THROTTLES, _READ, _TIP_TIME, _TIP_READ = range(len(OPERATIONS), len(OPERATIONS) + 4)


class Tally:
    """API calls and throttles, and how far a shard was read.

    A `shared` one lies in memory that a child process has too: counting costs no message, and what
    a killed process has counted stays. Only one process at a time may count into it.
    """

    def __init__(self, *, shared: bool = False) -> None:
        size = _TIP_READ + 1
        # Doubles: whole numbers are exact up to 2**53, and times fit in.
        self._cells: MutableSequence[float] = RawArray("d", size) if shared else [0.0] * size

    def call(self, operation: str, times: int = 1) -> None:
        """Count a call of this API operation."""
        self._cells[_CELLS[operation]] += times

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

    def hand_on(self, delivered: int) -> None:
        """Let another process count on, from what has been delivered of the first one's records."""
        if self._cells[_TIP_READ] > delivered:
            self._cells[_TIP_TIME] = 0.0
        self._cells[_READ] = delivered

    def add(self, tallies: Iterable[Tally]) -> None:
        """Count the calls and throttles of others as well."""
        rows = [tally._cells[: _THROTTLES + 1] for tally in (self, *tallies)]
        self._cells[: _THROTTLES + 1] = [sum(column) for column in zip(*rows, strict=True)]

    @property
    def calls(self) -> dict[str, int]:
        """API calls by operation."""
        return {operation: int(self._cells[cell]) for operation, cell in _CELLS.items()}

    @property
    def throttles(self) -> int:
        """How many calls the service has throttled."""
        return int(self._cells[_THROTTLES])

    @property
    def records_read(self) -> int:
        """How many records were handed over, or are about to be."""
        return int(self._cells[_READ])

    @property
    def tip(self) -> tuple[float, int] | None:
        """When all there was had last been read (`time.monotonic()`), and how many records."""
        moment = self._cells[_TIP_TIME]
        return (moment, int(self._cells[_TIP_READ])) if moment else None
