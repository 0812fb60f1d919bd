"""Filters the changes that an undo takes back: by time, key, kind, pattern, text and caller."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from watcher.aws.config import AwsConfig
from watcher.errors import StreamError, UsageError
from watcher.formatting.text import grouped, printable
from watcher.records.filters import record_filter, words
from watcher.records.record import Record
from watcher.records.wire import WireFilter, is_by_ttl
from watcher.streams.start_times import Moment
from watcher.time_machine.callers import APART, Callers, Certainty
from watcher.time_machine.sources import Sources, past_time, records_until
from watcher.time_machine.trail import Trail

logger = logging.getLogger("watcher")

# Changes so close to the first and the last matching one may have had the same call.
_AROUND = timedelta(seconds=2 * APART)


class ChangeFilter:
    """Filters changes by their time, and by what `watch` filters records by. Raises UsageError."""

    def __init__(
        self,
        start: Moment | None,
        until: Moment | None = None,
        *,
        key: Iterable[str] | Mapping[str, Any] | None = None,
        filters: Iterable[str | Mapping[str, Any]] | None = None,
        only: str | Iterable[str] | None = None,
        grep: str | None = None,
        by: CallerFilter | None = None,
    ) -> None:
        if start is None:
            raise UsageError("give the time of the first change that is to be undone", "start")
        self.start = past_time(start, "start")
        self.until = None if until is None else past_time(until, "until")
        if self.until is not None and self.until < self.start:
            raise UsageError("it is before the beginning", "until", str(until))
        self.key = key
        self.by = by
        self._record_filter = partial(record_filter, filters, key, only, grep)
        self._record_filter()  # raises here for a wrong one
        self.undoes_ttl = "ttl" in words(only)
        """True where removals by time-to-live are undone, too."""

    def matcher(
        self, sources: Sources, now: datetime, is_ttl: WireFilter = is_by_ttl
    ) -> Callable[[Record], bool]:
        """Returns a function that is True for a matching change; `now` ends an open interval.

        With a filter by callers it reads the changes of these sources, and the trail.
        """
        first = self.start.timestamp()
        end = (self.until or now).timestamp() + 1
        matches_record = self._record_filter(is_ttl=is_ttl)
        by_caller = None if self.by is None else self.by.matcher(sources, self.start, self.until)

        def matches(record: Record) -> bool:
            created = record.wire.dynamodb.ApproximateCreationDateTime
            if created is None:
                raise StreamError("the changes have no times: they can't be chosen by them")
            return (
                first <= created < end
                and (matches_record is None or matches_record(record))
                and (by_caller is None or by_caller(record))
            )

        return matches


class CallerFilter:
    """Filters the changes that are certainly by callers of these names: `role/release-112`.

    Raises UsageError where there are no names.
    """

    def __init__(self, names: Iterable[str], trail: Trail) -> None:
        self.names = frozenset([names] if isinstance(names, str) else names)
        if not self.names:
            raise UsageError("name a caller: role/NAME, user/NAME", "only_by")
        self._trail = trail
        self._seen: Counter[str] = Counter()
        self.matched = 0
        """The number of changes that are certainly by them."""
        self.uncertain = 0
        """The number of changes that may be by them, or by others."""

    def matcher(
        self, sources: Sources, start: datetime, until: datetime | None
    ) -> Callable[[Record], bool]:
        """Reads changes and trail; returns a function that is True for a matching change."""
        callers = Callers(sources.table_arn)
        first = sources.again()
        first.open(start - _AROUND)
        for record in records_until(first.records(), until and until + _AROUND):
            callers.add_change(record)
        reading = self._trail.read(callers)

        def matches(record: Record) -> bool:
            answer = callers.answer(callers.change_key(record), reading.incomplete)
            self._seen[answer.names] += 1
            named = {each.name for each in answer.callers}
            named |= {f"{each.account}:{each.name}" for each in answer.callers}
            if self.names.isdisjoint(named):
                return False
            if answer.certainty is Certainty.CERTAIN:
                self.matched += 1
                return True
            self.uncertain += 1
            return False

        return matches

    def log(self) -> None:
        """Logs how many changes were uncertain, and where none matched who the callers are."""
        names = " or ".join(map(printable, sorted(self.names)))
        if self.uncertain:
            logger.warning(
                f"{grouped(self.uncertain, 'change')} left alone: by {names}, or by others "
                "(history --who says why)"
            )
        if not self.matched:
            callers = "; ".join(f"{count:,} {name}" for name, count in self._seen.most_common(10))
            found = f"the changes are by: {callers}" if callers else "there are no other changes"
            logger.warning(f"No change is certainly by {names}; {found}")


def caller_filter(
    names: str | Iterable[str] | None, who: str | None, connection: AwsConfig
) -> CallerFilter | None:
    """Returns the filter by callers; None without one. Raises UsageError for half of one."""
    if names is None and who is None:
        return None
    if who is None:
        raise UsageError("it takes a trail that names the callers: --who PLACE", "only_by")
    if names is None:
        raise UsageError("say whose changes to undo: --only-by role/NAME", "who", who)
    return CallerFilter(names, Trail(who, connection))
