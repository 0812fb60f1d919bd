"""Counts changes by dimensions: kind, key, attribute, table, caller, minute, hour or day."""

from __future__ import annotations

import functools
import heapq
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC
from itertools import product
from typing import Any, Final

import msgspec

from watcher.errors import UsageError
from watcher.formatting.style import time_text
from watcher.formatting.values import key_text
from watcher.records.diff import changed_attributes, normal_keys
from watcher.records.record import Record, creation_time
from watcher.records.redaction import Redaction
from watcher.time_machine.callers import Callers, ChangeKey
from watcher.time_machine.sorted_lines import SortedLines

_SECONDS_KEPT = 4096
_MOST_IN_MEMORY = 100_000  # some tens of megabytes

Value = tuple[str, ...]
"""The values that counted changes share: one text for each dimension."""
_line: Final = msgspec.json.Decoder(tuple[Value, Value, int])
_encode: Final = msgspec.json.Encoder().encode


class CountRow(msgspec.Struct, frozen=True):
    """The number of changes that share these values."""

    values: Value
    changes: int


class Counts:
    """Counts of changes by the dimensions `by`, in their order.

    A change of several attributes counts for each of them, so rows by attribute may add up to more
    than `changes`. Those by caller are named at last, by `name_callers`.
    """

    def __init__(
        self,
        by: Sequence[str],
        redaction: Redaction | None = None,
        *,
        most_in_memory: int = _MOST_IN_MEMORY,
    ) -> None:
        self._most_in_memory = most_in_memory
        self.by = tuple(by)
        self.changes = 0
        self._counter: Counter[Value] = Counter()
        self._lines = SortedLines()
        """What was counted before: of each value one line for each time that it was moved here."""
        self._times = [index for index, name in enumerate(by) if name in _UNITS]
        self._unnamed: Counter[tuple[Value, ChangeKey]] = Counter()
        self.callers: Callers | None = None
        """Tells the changes apart that are counted by caller."""
        self._redaction = redaction
        self._parts = [_part(name) for name in by]

    def add(self, records: Iterable[Record]) -> Counts:
        """Counts these records, too."""
        for record in records:
            self.changes += 1
            shown = record if self._redaction is None else self._redaction(record)
            for value in product(*(part(shown) for part in self._parts)):
                if self.callers is None:
                    self._counter[value] += 1
                    if len(self._counter) > self._most_in_memory:
                        self._move_to_lines()
                else:
                    self._unnamed[value, self.callers.change_key(record)] += 1
        return self

    def name_callers(self) -> None:
        """Names the callers of what was counted, by the trail that was read."""
        assert self.callers is not None
        at = self.by.index(CALLER)
        for (value, change), count in self._unnamed.items():
            name = self.callers.answer(change).names
            self._counter[*value[:at], name, *value[at + 1 :]] += count
        self._unnamed.clear()

    def rows(self, top: int) -> list[CountRow]:
        """Returns the `top` largest rows (0: all), the largest first.

        With a time among the dimensions: so many of each minute, hour or day, in order.
        """
        groups = itertools.groupby(self._all(), lambda row: self._time(row.values))
        return [row for _, rows in groups for row in _largest(rows, top)]

    def __len__(self) -> int:
        """Returns the number of all rows."""
        return sum(1 for _ in self._all())

    def _all(self) -> Iterator[CountRow]:
        """Yields all rows, by their times."""
        self._move_to_lines()
        lines = map(_line.decode, self._lines)
        for value, same in itertools.groupby(lines, lambda line: line[1]):
            yield CountRow(value, sum(count for _, _, count in same))

    def _time(self, value: Value) -> Value:
        return tuple(value[index] for index in self._times)

    def _move_to_lines(self) -> None:
        for value, count in self._counter.items():
            self._lines.add(_encode((self._time(value), value, count)) + b"\n")
        self._counter.clear()


def _largest(rows: Iterable[CountRow], top: int) -> list[CountRow]:
    def order(row: CountRow) -> tuple[int, Value]:
        return -row.changes, row.values

    return heapq.nsmallest(top, rows, order) if top else sorted(rows, key=order)


def dimensions(by: str | Iterable[str]) -> list[str]:
    """Returns the dimensions named in `kind,minute`. Raises UsageError for an unknown one."""
    texts = [by] if isinstance(by, str) else by
    names = [name.strip() for text in texts for name in text.split(",")]
    for name in names:
        if name not in NAMES:
            raise UsageError(f"there are {', '.join(NAMES)}", "by", name)
    if len(set(names)) < len(names):
        raise UsageError("name each one once", "by", ",".join(names))
    return names


def _part(name: str) -> Callable[[Record], Iterable[str]]:
    if name in _UNITS:
        # Most changes share their second with others. Cached by the number: in an hour that a clock
        # change repeats, two different datetimes are equal.
        text = functools.lru_cache(_SECONDS_KEPT)(functools.partial(_time_cut, zeros=_UNITS[name]))
        return lambda record: (text(record.wire.dynamodb.ApproximateCreationDateTime),)
    return _PARTS[name]


def _time_cut(seconds: float | None, zeros: Mapping[str, Any]) -> str:
    if seconds is None:
        return ""
    created = creation_time(seconds)
    # Cut in UTC: an hour that a clock change repeats is two.
    return time_text(created.astimezone(UTC).replace(**zeros).astimezone(created.tzinfo))


def _kind(record: Record) -> Iterator[str]:
    yield "TTL" if record.expired_by_ttl else record.event_name


def _key(record: Record) -> Iterator[str]:
    (keys,) = normal_keys([record.wire.dynamodb.Keys])
    yield key_text(msgspec.Raw(keys))


def _attributes(record: Record) -> Iterable[str]:
    """Yields the changed attributes, all of a new or removed item's, without the key's."""
    changed = changed_attributes(record.wire)
    if changed is None:
        return ("(not known)",)
    keys = record["dynamodb"]["Keys"]
    return [name for name in changed if name not in keys]


CALLER: Final = "caller"
_PARTS: Final[Mapping[str, Callable[[Record], Iterable[str]]]] = {
    "kind": _kind,
    "key": _key,
    "attribute": _attributes,
    "table": lambda record: (record.table,),
    CALLER: lambda record: ("",),
}
_UNITS: Final[Mapping[str, dict[str, Any]]] = {
    "minute": {"second": 0, "microsecond": 0},
    "hour": {"minute": 0, "second": 0, "microsecond": 0},
    "day": {"hour": 0, "minute": 0, "second": 0, "microsecond": 0},
}
NAMES: Final = (*_PARTS, *_UNITS)
"""The dimensions that changes can be counted by."""
