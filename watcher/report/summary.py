"""Counts the changes of a stream's records or of an archive's rows, in bounded memory."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from decimal import DecimalException
from functools import lru_cache
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

import msgspec

from watcher.errors import WatcherError
from watcher.records.diff import changed_attributes, differing, key_of, number_text
from watcher.records.record import Record
from watcher.records.wire import KINDS, is_time_to_live
from watcher.time_machine.archives import ArchiveRow, wire_value

_LATEST = 10
_KEYS = 20_000
_ATTRIBUTES = 2_000
_MAX_BUCKETS = 5_000
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
# Widths that people can read off an axis; beyond a day, whole days.
_WIDTHS = [60 * minutes for minutes in (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440)]

Key: TypeAlias = tuple[tuple[str, str], ...]
"""An item's key: its attributes' names and values as text, by name.

If there are several tables, it begins with the table's name, under "".
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
    shard_id: str = ""


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


class ShardCount:
    """The number of changes of a shard, and the times of the first and the last."""

    __slots__ = ("changes", "first", "last")

    def __init__(self) -> None:
        self.changes = 0
        self.first: float | None = None
        self.last: float | None = None

    def add(self, seconds: float | None) -> None:
        """Counts a change."""
        self.changes += 1
        if seconds is not None:
            self.first = seconds if self.first is None else min(seconds, self.first)
            self.last = seconds if self.last is None else max(seconds, self.last)


class Summary:
    """The sums over all changes of a report."""

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()
        self.histogram = Histogram()
        self.keys: Busiest[Key] = Busiest(_KEYS)
        self.attributes: Busiest[str] = Busiest(_ATTRIBUTES)
        self.shards: dict[str, ShardCount] = {}
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

    def add(self, change: CountedChange) -> None:
        """Counts one more change."""
        self.kinds[change.kind] += 1
        self.keys.add(change.key)
        if change.seconds is not None:
            self.histogram.add(change.kind, change.seconds)
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


# Converts records and archive rows to the changes that a report counts

_YEAR_2200: Final = 7_258_118_400
_image: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


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
            _key_of_wire(bytes(change.Keys)),
            changed_attributes(wire) if wire.eventName == "MODIFY" else None,
            record.expired_by_ttl,
            record.shard_id,
        )
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, WatcherError) as error:
        raise UnreadableChangeError(str(error)) from error


def change_of_row(row: ArchiveRow) -> CountedChange:
    """Returns the part of an archive's row that a report counts. Raises UnreadableChangeError."""
    try:
        kind = _kind(row.get("event_name"))
        identity = row.get("user_identity") or {}
        return CountedChange(
            kind,
            _seconds(row.get("approximate_creation_time")),
            _key_of_json(row.get("keys") or ""),
            _changed(row.get("old_image"), row.get("new_image")) if kind == "MODIFY" else None,
            kind == "REMOVE"
            and is_time_to_live(identity.get("type"), identity.get("principal_id")),
            row.get("shard_id") or "",
        )
    except (
        msgspec.DecodeError,
        DecimalException,
        RecursionError,
        AttributeError,
        ValueError,
        TypeError,
    ) as error:
        raise UnreadableChangeError(str(error)) from error


def _kind(name: object) -> str:
    if name not in KINDS:
        raise UnreadableChangeError(f"unknown kind of change: {name!r}")
    return str(name)


def _known(seconds: float | None) -> float | None:
    """Returns a plausible time; None for one at which nothing can have been changed."""
    return seconds if seconds is not None and 0 < seconds < _YEAR_2200 else None


@lru_cache(maxsize=10_000)
def _key_of_wire(keys: bytes) -> Key:
    key = key_of(keys) if keys else {}
    return tuple(sorted((name, text) for name, value in key.items() for text in value.values()))


@lru_cache(maxsize=10_000)
def _key_of_json(keys: str) -> Key:
    """Returns a key of plain JSON; a number has its one text."""
    return tuple(sorted((name, _text(value)) for name, value in _image.decode(keys).items()))


def _text(value: msgspec.Raw) -> str:
    written = bytes(value)
    if written[:1] == b'"':
        return msgspec.json.decode(value, type=str)
    return number_text(written.decode())


def _changed(old: object, new: object) -> list[str] | None:
    if not isinstance(old, str) or not isinstance(new, str) or not old or not new:
        return None
    return list(differing(_image.decode(old), _image.decode(new), wire_value))


def _seconds(time: datetime | None) -> float | None:
    return None if time is None else _known(time.timestamp())
