"""What a batch read leaves out, by the filters that Spark hands down (4.1 and newer).

Spark applies them all again to what comes, so that nothing depends on more than this: what is left
out here would have been left out there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from watcher.aws.model import AtTime, Position, TrimHorizon
from watcher.records.wire import WireRecord
from watcher.spark.options import SourceOptions
from watcher.streams.lineage import RETENTION

# Of records' times inside a shard nobody promises that they only grow.
_APART: Final = timedelta(minutes=1)
_TIME: Final = "approximate_creation_time"
_NAMES: Final = ("event_name", "shard_id", "table_name")


class Pushed(msgspec.Struct, frozen=True):
    """What a row has to be for Spark to keep it."""

    since: datetime | None = None
    until: datetime | None = None
    names: dict[str, frozenset[str]] = {}
    """Of some columns all values that they may have."""

    def may_be(self, column: str, value: str) -> bool:
        """Whether rows with this value in a column may be kept."""
        return column not in self.names or value in self.names[column]

    def records(self, records: Sequence[WireRecord]) -> Sequence[WireRecord]:
        """Those that may be kept."""
        if (wanted := self.names.get("event_name")) is None:
            return records
        return [each for each in records if each.eventName in wanted]

    def options(self, given: SourceOptions, now: datetime) -> SourceOptions:
        """The options of a read, its beginning and its end nearer to each other."""
        start, end = given.start, given.end
        if self.since is not None and self.since > now - RETENTION:
            start = _later(start, (min(self.since, now) - _APART).replace(microsecond=0))
        # One far ahead, where time ends for Python (9999-12-31 23:59:59), leaves nothing out.
        if self.until is not None and self.until < now + RETENTION:
            until = self.until + _APART
            end = until if end is None else min(end, until)
        return msgspec.structs.replace(given, start=start, end=end)


def pushed(filters: Iterable[Any]) -> Pushed:
    """What they say together, as far as it is of use here."""
    since: datetime | None = None
    until: datetime | None = None
    names: dict[str, frozenset[str]] = {}
    for each in filters:
        kind, path = type(each).__name__, each.attribute if hasattr(each, "attribute") else ()
        value: Any = getattr(each, "value", None)
        match kind, path:
            case (("EqualTo" | "EqualNullSafe" | "In"), (name,)) if name in _NAMES:
                found = frozenset(value if kind == "In" else [value])
                names[name] = names.get(name, found) & found
            case _, (name,) if name == _TIME and _is_instant(value):
                if kind in ("EqualTo", "EqualNullSafe", "GreaterThan", "GreaterThanOrEqual"):
                    since = value if since is None else max(since, value)
                if kind in ("EqualTo", "EqualNullSafe", "LessThan", "LessThanOrEqual"):
                    until = value if until is None else min(until, value)
    return Pushed(since, until, names)


def _is_instant(value: object) -> bool:
    return isinstance(value, datetime) and value.tzinfo is not None


def _later(start: Position, time: datetime) -> Position:
    match start:
        case TrimHorizon():
            return AtTime(time)
        case AtTime(given):
            return AtTime(max(given, time))
    return start
