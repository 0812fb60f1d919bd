"""Adds up changes in bounded memory, however many there are: what a report is made of."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Generic, NamedTuple, TypeAlias, TypeVar

_LATEST = 10
_KEYS = 20_000
_ATTRIBUTES = 2_000
_BUCKETS = 5_000
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
# What people read off an axis; from a day on, whole days.
_WIDTHS = [60 * minutes for minutes in (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440)]

Key: TypeAlias = tuple[tuple[str, str], ...]
"""An item's key: its attributes' names and values as text, by name."""

_Name = TypeVar("_Name", Key, str)


class CountedChange(NamedTuple):
    """What a report looks at in one change."""

    kind: str
    """One of KINDS."""
    seconds: float | None
    """When it was made (epoch); None where that is not known."""
    key: Key
    attributes: Sequence[str] | None = None
    """Of a modification: the attributes that differ; None where the images to tell are missing."""
    by_ttl: bool = False
    """Whether it is a removal by DynamoDB's time-to-live."""
    shard_id: str = ""


class Busiest(Generic[_Name]):
    """The most frequent of however many names, with at most `bound` counters (Misra and Gries).

    Exact as long as there are no more names than that. Beyond, each name's count is too low by
    `error` at the most, which stays below 2/bound of all that was counted.
    """

    def __init__(self, bound: int) -> None:
        self.bound = bound
        self.counts: dict[_Name, int] = {}
        self.error = 0

    def add(self, name: _Name) -> None:
        """Count a name once more."""
        self.counts[name] = self.counts.get(name, 0) + 1
        if len(self.counts) > self.bound:
            self._make_room()

    def _make_room(self) -> None:
        """Take the median off all: the lower half goes, and those that matter stay."""
        cut = sorted(self.counts.values())[len(self.counts) // 2]
        self.error += cut
        self.counts = {name: count - cut for name, count in self.counts.items() if count > cut}

    def top(self, number: int) -> list[tuple[_Name, int]]:
        """The most frequent names, each with its count (at least that)."""
        return heapq.nsmallest(number, self.counts.items(), key=lambda pair: (-pair[1], pair[0]))


class Timeline:
    """How many changes of each kind there were, by the minute; by more for a very long time."""

    def __init__(self) -> None:
        self._width = _MINUTE
        self._buckets: dict[int, Counter[str]] = {}
        self.first: float | None = None
        self.last: float | None = None

    def add(self, kind: str, seconds: float) -> None:
        """Count a change."""
        self.first = seconds if self.first is None else min(seconds, self.first)
        self.last = seconds if self.last is None else max(seconds, self.last)
        start = int(seconds // self._width) * self._width
        bucket = self._buckets.get(start)
        if bucket is None:
            bucket = self._buckets[start] = Counter()
            if len(self._buckets) > _BUCKETS:
                self._width = {_MINUTE: _HOUR, _HOUR: _DAY}.get(self._width, self._width * 7)
                self._buckets = self._merged(self._width)
                bucket = self._buckets[start // self._width * self._width]
        bucket[kind] += 1

    def buckets(self, most: int) -> tuple[int, dict[int, Counter[str]]]:
        """The counts by their bucket's start, and the width, both in seconds.

        The width is the least that needs no more than so many buckets from the first to the last.
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


class ShardCount:
    """How many changes of a shard there were, and when."""

    __slots__ = ("changes", "first", "last")

    def __init__(self) -> None:
        self.changes = 0
        self.first: float | None = None
        self.last: float | None = None

    def add(self, seconds: float | None) -> None:
        """Count a change."""
        self.changes += 1
        if seconds is not None:
            self.first = seconds if self.first is None else min(seconds, self.first)
            self.last = seconds if self.last is None else max(seconds, self.last)


class Summary:
    """All that a report says of the changes themselves."""

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()
        self.timeline = Timeline()
        self.keys: Busiest[Key] = Busiest(_KEYS)
        self.attributes: Busiest[str] = Busiest(_ATTRIBUTES)
        self.shards: dict[str, ShardCount] = {}
        self.without_images = 0
        """Modifications that carry no images to tell what was modified."""
        self.by_ttl = 0
        self._expired: list[tuple[float, Key]] = []

    @property
    def changes(self) -> int:
        """How many there were."""
        return self.kinds.total()

    @property
    def untimed(self) -> int:
        """How many of them carry no time."""
        return self.changes - sum(counts.total() for counts in self.timeline.buckets(2)[1].values())

    @property
    def expired(self) -> list[tuple[float, Key]]:
        """The latest removals by time-to-live, with their times (epoch), the latest first."""
        return sorted(self._expired, reverse=True)

    def add(self, change: CountedChange) -> None:
        """Take one more change in."""
        self.kinds[change.kind] += 1
        self.keys.add(change.key)
        if change.seconds is not None:
            self.timeline.add(change.kind, change.seconds)
        if change.kind == "MODIFY":
            self._add_attributes(change.attributes)
        if change.shard_id:
            shard = self.shards.get(change.shard_id)
            if shard is None:
                shard = self.shards[change.shard_id] = ShardCount()
            shard.add(change.seconds)
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
