"""Judges what watches deliver as it comes, in memory that does not grow with the hours.

Every change of an item carries its number, so what is missing, swapped or repeated is seen at once;
what was written need not be kept.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field

# The checkpoint is saved every second, looked after five times a second; the rest is for a machine
# that has more to do.
SAVED_SECONDS = 3.0
_KEPT_SECONDS = 60.0
FORBIDDEN = (
    *("missing, or out of order", "repeated within a run", "repeated too much"),
    "delivered without the lease",
)


@dataclass
class Run:
    """One run of the program: what it delivered last of each item, and how it ended."""

    last: dict[str, int] = field(default_factory=dict)
    cut_off: float | None = None
    """When it was killed, or stopped for longer than its lease; None where it ended in order."""
    superseded: bool = False
    """Whether it lost the lease while it was stopped."""
    late: int = 0
    """Delivered after that; one may have been in a handler's hands."""


class Account:
    """What runs that share their positions have delivered, one after another."""

    def __init__(self) -> None:
        self.newest: Counter[str] = Counter()
        """The last change of each item."""
        self.delivered = 0
        self.repeated = 0
        """By a run what another had delivered before: allowed just before a kill."""
        self.faults: Counter[str] = Counter()
        """What must not be; empty is good."""
        self._recent: deque[tuple[float, str, int, Run]] = deque()
        self._by: dict[tuple[str, int], tuple[float, Run]] = {}

    def take(self, run: Run, key: str, number: int, now: float) -> None:
        """A run has delivered this change of an item."""
        self.delivered += 1
        if run.superseded:
            run.late += 1
            self.faults["delivered without the lease"] += run.late > 1
            return
        before = run.last.get(key, min(self.newest[key], number - 1))
        if number <= before:
            self.faults["repeated within a run"] += 1
            return
        self.faults["missing, or out of order"] += number - before - 1
        run.last[key] = number
        if number <= self.newest[key]:
            self._repeat(key, number)
        self.newest[key] = max(self.newest[key], number)
        self._by[key, number] = now, run
        self._recent.append((now, key, number, run))
        while self._recent[0][0] < now - _KEPT_SECONDS:
            moment, key, number, by = self._recent.popleft()
            if self._by.get((key, number)) == (moment, by):
                del self._by[key, number]

    def _repeat(self, key: str, number: int) -> None:
        self.repeated += 1
        moment, by = self._by.get((key, number), (0.0, None))
        if by is None or by.cut_off is None or by.cut_off - moment > SAVED_SECONDS:
            self.faults["repeated too much"] += 1

    def lost(self, written: Counter[str]) -> int:
        """How many of the changes written were not delivered at all, at the end."""
        return (written - self.newest).total()
