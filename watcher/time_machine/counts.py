"""How much changed, when and where: changes counted by what they have in common."""

from __future__ import annotations

import functools
import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC
from itertools import product
from typing import Any, Final

import msgspec

from watcher.errors import UsageError
from watcher.formatting.style import time_text
from watcher.formatting.text import printable, printable_key
from watcher.records.diff import changed_attributes
from watcher.records.record import Record, creation_time

_SECONDS_KEPT = 4096

Value = tuple[str, ...]
"""What counted changes have in common: one text for each of `by`."""


class Row(msgspec.Struct, frozen=True):
    """So many changes have these in common."""

    values: Value
    changes: int


class Counts:
    """Changes by what they have in common, in the order of `by`.

    A change of several attributes counts for each of them, so rows by attribute may add up to more
    than `changes`.
    """

    def __init__(self, by: Sequence[str]) -> None:
        self.by = tuple(by)
        self.changes = 0
        self._counter: Counter[Value] = Counter()
        self._parts = [_part(name) for name in by]

    def add(self, records: Iterable[Record]) -> Counts:
        """Count these, too."""
        for record in records:
            self.changes += 1
            for value in product(*(part(record) for part in self._parts)):
                self._counter[value] += 1
        return self

    def rows(self, top: int) -> list[Row]:
        """The `top` largest (0: all), the largest first.

        With a time among `by`: so many of each minute, hour or day, one after the other.
        """
        times = [place for place, name in enumerate(self.by) if name in _UNITS]
        grouped: dict[Value, list[Row]] = {}
        for value, count in self._counter.items():
            moment = tuple(value[place] for place in times)
            grouped.setdefault(moment, []).append(Row(value, count))
        return [row for moment in sorted(grouped) for row in _largest(grouped[moment], top)]

    def __len__(self) -> int:
        """How many rows there are in all."""
        return len(self._counter)


def _largest(rows: list[Row], top: int) -> list[Row]:
    def order(row: Row) -> tuple[int, Value]:
        return -row.changes, row.values

    return heapq.nsmallest(top, rows, order) if top else sorted(rows, key=order)


def dimensions(by: str | Iterable[str]) -> list[str]:
    """The names in `kind,minute`. Raises UsageError for one that there is not."""
    texts = [by] if isinstance(by, str) else by
    names = [name.strip() for text in texts for name in text.split(",")]
    for name in names:
        if name not in NAMES:
            raise UsageError(f"there are {', '.join(NAMES)}", "by", name)
    if len(set(names)) < len(names):
        raise UsageError("each of them once", "by", ",".join(names))
    return names


def _part(name: str) -> Callable[[Record], Iterable[str]]:
    if name in _UNITS:
        # Most changes share their second with others. As a number: of an hour that a clock change
        # repeats, two datetimes are equal.
        text = functools.lru_cache(_SECONDS_KEPT)(functools.partial(_moment, zeros=_UNITS[name]))
        return lambda record: (text(record.wire.dynamodb.ApproximateCreationDateTime),)
    return _PARTS[name]


def _moment(seconds: float | None, zeros: Mapping[str, Any]) -> str:
    if seconds is None:
        return ""
    created = creation_time(seconds)
    # Cut in UTC: an hour that a clock change repeats is two.
    return time_text(created.astimezone(UTC).replace(**zeros).astimezone(created.tzinfo))


def _kind(record: Record) -> Iterator[str]:
    yield "TTL" if record.expired_by_ttl else record.event_name


def _key(record: Record) -> Iterator[str]:
    yield printable_key(record["dynamodb"]["Keys"])


def _attributes(record: Record) -> Iterable[str]:
    """All of them of an item that comes or goes; not its key, which never changes."""
    changed = changed_attributes(record.wire)
    if changed is None:
        return ("(not known)",)
    keys = record["dynamodb"]["Keys"]
    return [printable(name) for name in changed if name not in keys]


_PARTS: Final[Mapping[str, Callable[[Record], Iterable[str]]]] = {
    "kind": _kind,
    "key": _key,
    "attribute": _attributes,
    "table": lambda record: (record.table,),
}
_UNITS: Final[Mapping[str, dict[str, Any]]] = {
    "minute": {"second": 0, "microsecond": 0},
    "hour": {"minute": 0, "second": 0, "microsecond": 0},
    "day": {"hour": 0, "minute": 0, "second": 0, "microsecond": 0},
}
NAMES: Final = (*_PARTS, *_UNITS)
"""What changes can be counted by."""
