"""Counts the changes of a report, in bounded memory."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

import msgspec

from watcher.aws.arns import table_of
from watcher.errors import WatcherError
from watcher.records.diff import changed_attributes, key_of
from watcher.records.record import Record
from watcher.records.wire import KINDS

_LATEST = 10
_KEYS = 20_000
_ATTRIBUTES = 2_000
_MAX_BUCKETS = 5_000
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
# Widths that people can read off an axis; beyond a day, whole days.
_WIDTHS = [60 * minutes for minutes in (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440)]

Key: TypeAlias = tuple[tuple[str, str], ...]
"""An item's key: its attributes' names and values as text, by name.

It begins with its table's ARN, under "": equal keys of two tables are two items.
"""

_Name = TypeVar("_Name", Key, str)


class CountedChange(NamedTuple):
    """The part of one change that a report counts."""

    kind: str
    """The kind of change, one of KINDS."""
    seconds: float | None
    """The time of the change (epoch); None where it is unknown."""
    key: Key
    attributes: Sequence[str] | None = None
    """The attributes that a modification changed; None where an image is missing."""
    by_ttl: bool = False
    """True for a removal by DynamoDB's time-to-live."""


class Busiest(Generic[_Name]):
    """The most frequent of any number of names, with at most `bound` counters (Misra and Gries).

    The counts are exact up to `bound` names. Beyond, each count is too low by at most `error`,
    which stays below 2/bound of everything counted.
    """

    def __init__(self, bound: int) -> None:
        self.bound = bound
        self.counts: dict[_Name, int] = {}
        self.error = 0

    def add(self, name: _Name) -> None:
        """Counts a name once more."""
        self.counts[name] = self.counts.get(name, 0) + 1
        if len(self.counts) > self.bound:
            self._make_room()

    def _make_room(self) -> None:
        """Subtracts the median from all counts: the lower half goes, the frequent names stay."""
        cut = sorted(self.counts.values())[len(self.counts) // 2]
        self.error += cut
        self.counts = {name: count - cut for name, count in self.counts.items() if count > cut}

    def top(self, number: int) -> list[tuple[_Name, int]]:
        """Returns the most frequent names, each with its count, which may be too low."""
        return heapq.nsmallest(number, self.counts.items(), key=lambda pair: (-pair[1], pair[0]))


class Histogram:
    """Counts of changes by kind and minute; by hour or day once there are too many buckets."""

    def __init__(self, *, max_buckets: int = _MAX_BUCKETS) -> None:
        self._max_buckets = max_buckets
        self._width = _MINUTE
        self._buckets: dict[int, Counter[str]] = {}
        self.first: float | None = None
        self.last: float | None = None

    def add(self, kind: str, seconds: float) -> None:
        """Counts a change."""
        self.first = seconds if self.first is None else min(seconds, self.first)
        self.last = seconds if self.last is None else max(seconds, self.last)
        start = int(seconds // self._width) * self._width
        bucket = self._buckets.get(start)
        if bucket is None:
            bucket = self._buckets[start] = Counter()
            if len(self._buckets) > self._max_buckets:
                self._width = {_MINUTE: _HOUR, _HOUR: _DAY}.get(self._width, self._width * 7)
                self._buckets = self._merged(self._width)
                bucket = self._buckets[start // self._width * self._width]
        bucket[kind] += 1

    def __len__(self) -> int:
        """Returns the number of buckets held in memory."""
        return len(self._buckets)

    def buckets(self, most: int) -> tuple[int, dict[int, Counter[str]]]:
        """Returns the buckets' width, and the counts by their bucket's start, both in seconds.

        The width is the least that needs at most `most` buckets from the first to the last change.
        """
        if self.first is None or self.last is None:
            return self._width, {}
        width = self._width
        needed = (self.last - self.first) / (most - 1)
        if width < needed:
            fitting = (each for each in _WIDTHS if each >= needed and each % width == 0)
            whole = max(width, _DAY)
            width = next(fitting, -int(-needed // whole) * whole)
        return width, dict(sorted(self._merged(width).items()))

    def _merged(self, width: int) -> dict[int, Counter[str]]:
        merged: dict[int, Counter[str]] = {}
        for start, counts in self._buckets.items():
            merged.setdefault(start // width * width, Counter()).update(counts)
        return merged


class Summary:
    """The sums over all changes of a report."""

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()
        self.histogram = Histogram()
        self.keys: Busiest[Key] = Busiest(_KEYS)
        self.attributes: Busiest[str] = Busiest(_ATTRIBUTES)
        self.without_images = 0
        """Modifications without the images that tell the changed attributes."""
        self.by_ttl = 0
        self._expired: list[tuple[float, Key]] = []

    @property
    def changes(self) -> int:
        """The number of all changes."""
        return self.kinds.total()

    @property
    def untimed(self) -> int:
        """The number of changes without a time."""
        _, buckets = self.histogram.buckets(2)
        return self.changes - sum(counts.total() for counts in buckets.values())

    @property
    def expired(self) -> list[tuple[float, Key]]:
        """The latest removals by time-to-live, with their times (epoch), the newest first."""
        return sorted(self._expired, reverse=True)

    def add_record(self, record: Record) -> None:
        """Counts one more change. Raises UnreadableChangeError."""
        self.add(change_of_record(record))

    def add(self, change: CountedChange) -> None:
        """Counts one more change."""
        self.kinds[change.kind] += 1
        self.keys.add(change.key)
        if change.seconds is not None:
            self.histogram.add(change.kind, change.seconds)
        if change.kind == "MODIFY":
            self._add_attributes(change.attributes)
        if change.by_ttl:
            self.by_ttl += 1
            heapq.heappush(self._expired, (change.seconds or 0.0, change.key))
            if len(self._expired) > _LATEST:
                heapq.heappop(self._expired)

    def _add_attributes(self, names: Iterable[str] | None) -> None:
        if names is None:
            self.without_images += 1
            return
        for name in names:
            self.attributes.add(name)


_YEAR_2200: Final = 7_258_118_400


class UnreadableChangeError(WatcherError):
    """Raised for a change of an unknown kind, or with a malformed key or image."""


def change_of_record(record: Record) -> CountedChange:
    """Returns the part of a record that a report counts. Raises UnreadableChangeError."""
    wire = record.wire
    change = wire.dynamodb
    try:
        return CountedChange(
            _kind(wire.eventName),
            _known(change.ApproximateCreationDateTime),
            (("", table_of(record.stream)), *_key_of(bytes(change.Keys))),
            changed_attributes(wire) if wire.eventName == "MODIFY" else None,
            record.expired_by_ttl,
        )
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, WatcherError) as error:
        raise UnreadableChangeError(str(error)) from error


def _kind(name: object) -> str:
    if name not in KINDS:
        raise UnreadableChangeError(f"unknown kind of change: {name!r}")
    return str(name)


def _known(seconds: float | None) -> float | None:
    """Returns a plausible time; None for one at which nothing can have been changed."""
    return seconds if seconds is not None and 0 < seconds < _YEAR_2200 else None


@lru_cache(maxsize=10_000)
def _key_of(keys: bytes) -> Key:
    key = key_of(keys) if keys else {}
    return tuple(sorted((name, text) for name, value in key.items() for text in value.values()))
