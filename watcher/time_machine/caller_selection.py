"""The choice of changes by their callers, as a CloudTrail trail tells them."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

from watcher.errors import UsageError
from watcher.formatting.text import grouped, printable
from watcher.records.record import Record
from watcher.time_machine.callers import APART, Callers, Certainty
from watcher.time_machine.sources import Sources
from watcher.time_machine.times import records_until
from watcher.time_machine.trail import Trail

logger = logging.getLogger("watcher")

# Changes so close to the first and the last one that are chosen may have had the same call.
_AROUND = timedelta(seconds=2 * APART)


class CallerSelection:
    """Chooses the changes that are certainly by callers of these names: `role/release-112`.

    Raises UsageError where there are no names.
    """

    def __init__(self, names: Iterable[str], trail: Trail) -> None:
        self.names = frozenset([names] if isinstance(names, str) else names)
        if not self.names:
            raise UsageError("name a caller: role/NAME, user/NAME", "only_by")
        self._trail = trail
        self._seen: Counter[str] = Counter()
        self.chosen = 0
        """How many changes are certainly by them."""
        self.left = 0
        """How many may be by them, or by others."""

    def test(
        self, sources: Sources, start: datetime, until: datetime | None
    ) -> Callable[[Record], bool]:
        """Reads the changes, and the trail; returns the test whether a change is by them."""
        callers = Callers(sources.table_arn)
        first = sources.anew()
        first.open(start - _AROUND)
        for record in records_until(first.records(), until and until + _AROUND):
            callers.note(record)
        reading = self._trail.read(callers)

        def is_by_them(record: Record) -> bool:
            answer = callers.of(callers.noted(record), reading.incomplete)
            self._seen[answer.names] += 1
            named = {each.name for each in answer.callers}
            named |= {f"{each.account}:{each.name}" for each in answer.callers}
            if self.names.isdisjoint(named):
                return False
            if answer.certainty is Certainty.CERTAIN:
                self.chosen += 1
                return True
            self.left += 1
            return False

        return is_by_them

    def log(self) -> None:
        """Logs what was left alone, and where nothing was chosen what callers there are."""
        names = " or ".join(map(printable, sorted(self.names)))
        if self.left:
            logger.warning(
                f"{grouped(self.left, 'change')} left alone: by {names}, or by others "
                "(history --who says why)"
            )
        if not self.chosen:
            callers = "; ".join(f"{count:,} {name}" for name, count in self._seen.most_common(10))
            found = f"the changes are by: {callers}" if callers else "there are no other changes"
            logger.warning(f"No change is certainly by {names}; {found}")
