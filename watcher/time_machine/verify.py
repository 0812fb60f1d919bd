"""Verifies that a copy is equal to its table, both at one position of the stream.

The stream is read from the copy's position on, beside a scan of the table: an item that was not
changed since is as the scan finds it, and of all others the changes tell every state. So it does
not matter who writes meanwhile, to the table or, where its position is not known, to the copy.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from datetime import datetime, timedelta
from itertools import chain, groupby, islice
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from watcher.aws.model import CLOCKS_APART, WireItem
from watcher.aws.tables import ReadPace
from watcher.call_pool import CallPool
from watcher.errors import DataLossError, StreamError, UsageError
from watcher.records.diff import ABSENT, WireKey, number_text
from watcher.records.record import Record
from watcher.records.wire import WireRecord
from watcher.streams.lineage import RETENTION
from watcher.time_machine.as_of import INEXACT_ARCHIVE
from watcher.time_machine.copied_items import (
    Value,
    copied_text,
    differing_names,
    reads_as,
    wanted_text,
)
from watcher.time_machine.copies import Copy, item_of_image, readable
from watcher.time_machine.item_keys import Identity, identity, images_of
from watcher.time_machine.limits import LIMITS, TimeMachineLimits
from watcher.time_machine.sorted_lines import SortedLines
from watcher.time_machine.sources import Sources
from watcher.time_machine.table import TableHandle, scan_table
from watcher.time_machine.undo_plan import RunHeader, UndoStep, is_same, save_plan

LAG: Final = timedelta(minutes=1)
"""The default of the longest time that a copy without a position may be behind."""


class Change(NamedTuple):
    """A change that is missing in a copy."""

    number: str
    """The change's sequence number."""
    kind: str
    at: float | None
    """The change's time in epoch seconds."""


class CopyDifference(NamedTuple):
    """One difference of a copy."""

    attribute: str | None
    """The attribute; None for an item that is only on one side, or several times in the copy."""
    in_copy: Value = ABSENT
    in_table: Value = ABSENT
    missing: Change | None = None
    """The change before which the table had what the copy has; None where none explains it."""


class DifferentItem(msgspec.Struct, frozen=True):
    """An item whose copy differs."""

    key: WireKey
    differences: list[CopyDifference]
    here: msgspec.Raw | None
    """The item as the table had it when it was read; None: it had none."""
    there: msgspec.Raw | None
    copies: int
    """The number of items of this key in the copy."""


class Verification(msgspec.Struct, kw_only=True):
    """The outcome of a comparison."""

    at: datetime
    """The service's time at the start of the reading, or the time as of which the copy is."""
    items: int = 0
    """The number of compared items."""
    differing: int = 0
    """The number of items that differ, also those that are not in `found`."""
    found: list[DifferentItem] = []
    """The first items that differ, by their keys: the memory for them is limited."""
    not_compared: frozenset[str] = frozenset()
    """Attributes of the table for which the copy has no column."""


class VerifyProgress(NamedTuple):
    """The progress of the table's scan."""

    items: int
    units: float
    """The consumed read units."""
    share: float
    """The scanned share of the table, by DynamoDB's approximate size."""


# A line is the digest of its item's key, the letter of where it is from, for a change its number
# with zeros before it, for an item the digest of its text, and then JSON. So sorted lines bring
# together what belongs to an item: its copies, the scanned item, its changes in their order.
_COPY: Final = b"0"
_TABLE: Final = b"1"
_CHANGE: Final = b"2"
_KEY_BYTES: Final = 32
_NUMBER_DIGITS: Final = 64  # the longest numbers, Kinesis's, have 56
_PART: Final = slice(_KEY_BYTES, _KEY_BYTES + 1)
_TEXT: Final = slice(_PART.stop, _PART.stop + _KEY_BYTES)
_NUMBER: Final = slice(_PART.stop, _PART.stop + _NUMBER_DIGITS)
_NO_ANSWER: Final = "no answer, as changes are missing: "
_NOTHING: Final = b"null"
_LONGEST_SECONDS: Final = 10 * RETENTION.total_seconds()
_encode: Final = msgspec.json.Encoder().encode
_sorted: Final = msgspec.json.Encoder(order="sorted").encode


class _ChangeLine(msgspec.Struct, array_like=True):
    number: str
    kind: str
    at: float | None
    old: msgspec.Raw
    new: msgspec.Raw


_change: Final = msgspec.json.Decoder(_ChangeLine)


def _digest(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=_KEY_BYTES // 2).hexdigest().encode()


def _line(item: Identity, part: bytes, middle: bytes, text: bytes) -> bytes:
    # Line breaks between JSON's tokens mean nothing, and its strings hold none.
    return b"%b%b%b%b\n" % (_digest(_encode(item)), part, middle, text.replace(b"\n", b" "))


def _change_line(record: Record) -> bytes:
    change = record.wire.dynamodb
    old, new = images_of(record, "compare a copy")
    made = _ChangeLine(
        change.SequenceNumber,
        record.event_name,
        change.ApproximateCreationDateTime,
        msgspec.Raw(old or _NOTHING),
        msgspec.Raw(new or _NOTHING),
    )
    number = made.number.zfill(_NUMBER_DIGITS).encode()
    return _line(identity(change.Keys), _CHANGE, number, _encode(made))


def _by_item(lines: Iterable[bytes]) -> Iterator[tuple[bytes, Iterator[bytes]]]:
    return groupby(lines, lambda line: line[:_KEY_BYTES])


class _Item:
    """An item while its lines are read: whether its copy has one of the states that it may have."""

    def __init__(self, comparison: ItemComparison) -> None:
        self._comparison = comparison
        self.copies = 0
        self.there: msgspec.Raw | None = None
        self.here: msgspec.Raw | None = None
        """The item in the table as the last line so far has it."""
        self.nearest: msgspec.Raw | None = None
        """The state that the copy's item differs least from; the newest of several."""
        self.names: list[str] | None = None
        """The attributes in which it does; empty where only one side has an item."""
        self.until: int | None = None
        """The number of the last change before that state; None where it is as the scan had it."""
        self._is_equal = False

    def take(self, lines: Iterable[bytes]) -> bool:
        """Takes in all lines of the item; returns True where the copy is equal."""
        has_changes = False
        there: WireItem | None = None
        for line in lines:
            part = line[_PART]
            if part == _CHANGE:
                change = _change.decode(line[_NUMBER.stop :])
                if not has_changes:
                    self._allow(_image(change.old), there, int(change.number) - 1)
                    has_changes = True
                self.here = _image(change.new)
                if self._comparison.may_have(change):
                    self._allow(self.here, there, int(change.number))
            elif part == _COPY:
                self.copies += 1
                self.there = msgspec.Raw(line[_TEXT.stop : -1])
                there = self._comparison.as_read(self.there)
            else:
                self.here = msgspec.Raw(line[_TEXT.stop : -1])
        if not has_changes:
            self._allow(self.here, there, None)
        return self._is_equal and self.copies < 2

    def _allow(self, state: msgspec.Raw | None, there: WireItem | None, until: int | None) -> None:
        """Takes in a state that the copy may have."""
        if self._is_equal:
            return
        names = self._comparison.differing(state, there)
        if names is None:
            self._is_equal = True
        elif not self.names or 0 < len(names) <= len(self.names):
            self.nearest, self.names, self.until = state, names, until

    @property
    def size(self) -> int:
        """About how many bytes it takes to keep it."""
        nearest = None if self.nearest is self.here else self.nearest
        return sum(len(bytes(each)) for each in (self.there, self.here, nearest) if each)

    def told(self, past: Iterable[bytes]) -> DifferentItem:
        """Returns how the copy differs from that state, and which of the past changes it lacks."""
        comparison = self._comparison
        there = None if self.there is None else comparison.as_read(self.there)
        differences = [CopyDifference(None)]
        if self.copies < 2:
            missing = self._missing(there, past)
            differences = [CopyDifference(None, missing=missing.get(None))]
            if self.names and self.nearest is not None:
                here = comparison.as_copied(self.nearest)
                values = (
                    (name, (there or {}).get(name, ABSENT), here.get(name, ABSENT))
                    for name in self.names
                )
                differences = [CopyDifference(*each, missing.get(each[0])) for each in values]
        return DifferentItem(
            comparison.key_in(self.there or self.here or self.nearest or msgspec.Raw(b"{}")),
            differences,
            self.here,
            self.there,
            self.copies,
        )

    def _missing(self, there: WireItem | None, past: Iterable[bytes]) -> dict[str | None, Change]:
        """Returns for each difference the last change that took away what the copy has."""
        found: dict[str | None, Change] = {}
        as_scanned: dict[str | None, Change] = {}
        for line in past:
            change = _change.decode(line[_NUMBER.stop :])
            if self.until is not None and int(change.number) > self.until:
                break
            told = Change(change.number, change.kind, change.at)
            found |= dict.fromkeys(self._taken_away(change, there), told)
            # Changes behind the scanned state were made after it was read.
            if self.until is None and _is_same(_image(change.new), self.here):
                as_scanned = dict(found)
        return as_scanned if self.until is None else found

    def _taken_away(self, change: _ChangeLine, there: WireItem | None) -> Iterator[str | None]:
        """Yields those of the differences in which the copy is as the item was before a change."""
        comparison = self._comparison
        old, new = _image(change.old), _image(change.new)
        if not self.names:
            if comparison.differing(old, there) is None:
                yield None
        elif old is not None:
            before = comparison.as_copied(old)
            after = {} if new is None else comparison.as_copied(new)
            for name in self.names:
                in_copy = (there or {}).get(name, ABSENT)
                was, became = (
                    reads_as(each.get(name, ABSENT), in_copy, comparison.copy.form)
                    for each in (before, after)
                )
                if was and not became:
                    yield name


class ItemComparison:
    """Decides whether an item of a copy is equal to the table's.

    `types` are those of the key's attributes. `ignore` are attributes that do not count.
    """

    def __init__(
        self,
        copy: Copy,
        types: dict[str, str],
        *,
        table: str,
        ignore: Iterable[str] = (),
        limits: TimeMachineLimits = LIMITS,
    ) -> None:
        self.copy = copy
        self.types = types
        self.not_compared: set[str] = set()
        """Attributes of the table for which the copy has no column."""
        self._ignore = frozenset(ignore)
        self._table = table
        position = copy.position
        self.has_position = position.token is not None or position.at is not None
        self._copied_until = None
        if position.copied_at is not None:
            self._copied_until = (position.copied_at + limits.clock_error).timestamp()

    def copied(self, item: WireItem) -> bytes:
        """Returns the line of an item of the copy."""
        text = copied_text(self._without_ignored(item), self.copy.form)
        return _line(self._identity(item, self.copy.label), _COPY, _digest(text), _encode(item))

    def scanned(self, image: bytes | msgspec.Raw) -> bytes:
        """Returns the line of an item of the table."""
        item = item_of_image(image)
        if self.copy.columns is not None:
            self.not_compared.update(item.keys() - self.copy.columns - self._ignore)
        text = wanted_text(self._as_copied(item), self.copy.form)
        return _line(self._identity(item, self._table), _TABLE, _digest(text), bytes(image))

    def differing(self, state: msgspec.Raw | None, there: WireItem | None) -> list[str] | None:
        """Returns the attributes that differ: none where only one side has an item.

        None where both sides are equal.
        """
        if state is None or there is None:
            return None if (state is None) is (there is None) else []
        return differing_names(self.as_copied(state), there, self.copy.form) or None

    def may_have(self, change: _ChangeLine) -> bool:
        """Returns True for a change behind the copy's position that it may have nevertheless."""
        if not self.has_position:
            return True
        if self._copied_until is None or change.at is None:
            return False
        return change.at <= self._copied_until

    def as_copied(self, image: msgspec.Raw) -> WireItem:
        """Returns an item of the table as the copy would have it."""
        return self._as_copied(item_of_image(image))

    def as_read(self, there: msgspec.Raw) -> WireItem:
        """Returns the copy's item."""
        return self._without_ignored(msgspec.json.decode(there))

    def key_in(self, image: msgspec.Raw) -> WireKey:
        """Returns the key of an item of either side."""
        names = dict(self._identity(msgspec.json.decode(image), self.copy.label))
        return {name: {kind: names[name]} for name, kind in self.types.items()}

    def _as_copied(self, item: WireItem) -> WireItem:
        return self._without_ignored(self.copy.as_copied(item))

    def _without_ignored(self, item: WireItem) -> WireItem:
        if not self._ignore:
            return item
        return {name: value for name, value in item.items() if name not in self._ignore}

    def _identity(self, item: WireItem, label: str) -> Identity:
        """Returns an item's identity. Raises UsageError where it lacks a part of the key."""
        found = []
        for name, kind in self.types.items():
            value = item.get(name)
            if value is None or "NULL" in value:
                text = f"{label} has an item without the key attribute {name}"
                raise UsageError(text, "with_")
            (text,) = value.values()
            found.append((name, number_text(str(text)) if kind == "N" else str(text)))
        return tuple(sorted(found))


class Verifier:
    """Compares a copy with the table of these sources.

    `lag` is how old a change may be that a copy without a position lacks; see `ItemComparison`.
    Raises UsageError, StreamError, DataLossError.
    """

    def __init__(
        self,
        sources: Sources,
        copy: Copy,
        *,
        lag: timedelta = LAG,
        ignore: Iterable[str] = (),
        read_limit: float | None = None,
        on_progress: Callable[[VerifyProgress], object] = lambda progress: None,
        limits: TimeMachineLimits = LIMITS,
    ) -> None:
        if sources.stream is None:
            raise UsageError("name the stream of the table to compare the copy with")
        self._sources = sources
        self._stream = sources.stream
        self.copy = copy
        self._lag = lag
        self._on_progress = on_progress
        self._limits = limits
        self._table = self._stream.table
        types = self._table.description.types
        self._comparison = ItemComparison(
            copy, types, table=self.table, ignore=ignore, limits=limits
        )
        # Two threads: one reads the copy, and the other all else.
        self._copy_lines = SortedLines(limits.sorting_bytes)
        self._table_lines = SortedLines(limits.sorting_bytes)
        self._pace = ReadPace(read_limit, self._stream.clock)
        self._scanned = 0
        self._copy_reading: Future[None] = Future()
        self._is_broken_off = False
        self._since: datetime | None = None
        """The time of the first change that is needed, about; None where it is not known."""

    @property
    def table(self) -> str:
        """The table's ARN."""
        return self._table.description.arn

    @property
    def read_units(self) -> int:
        """An estimate of the read units that the scan of the table takes."""
        return self._table.read_units

    def run(self) -> Verification:
        """Reads both sides and returns how they differ."""
        self._open()
        calls = CallPool(most=1)
        try:
            (self._copy_reading,) = calls.start([self._read_copy], few=0)
            self._read_table()
        except DataLossError as error:
            raise StreamError(_NO_ANSWER + str(error)) from error
        finally:
            self._is_broken_off = True
            calls.close(wait=False)
        return self._compared()

    # Reading

    def _open(self) -> None:
        position = self.copy.position
        if position.token is not None:
            if position.token.stream_arn != self._stream.arn:
                raise UsageError(
                    f"it is a copy of {position.token.stream_arn}, not of {self._stream.arn}",
                    "with_",
                )
            self._sources.open_behind(position.token)
            self._since = position.stored_at
        elif position.at is not None:
            self._since = position.at.replace(microsecond=0)
            self._sources.open(self._since)
        else:
            self._open_before()
        self._sources.check_view_type("compare a copy")

    def _open_before(self) -> None:
        """Opens the stream at a time up to which a copy has all changes, if it keeps up."""
        listing = self._stream.backlog(None, strict=False).listing
        # The service's time: with that of a clock here that is late, a copy could lack anything.
        start = listing.time - self._lag - self._limits.coarsest_stamp - CLOCKS_APART
        description, created = self._table.description, listing.created
        if (
            created is not None
            and created > start
            and created - description.created < self._limits.created_together
        ):
            self._since = created
            self._sources.open(None)  # there was no table before its stream
        else:
            self._since = start.replace(microsecond=0)
            self._sources.open(self._since)

    def _read_copy(self) -> None:
        items = self.copy.items()
        while not self._is_broken_off:
            with readable(self.copy.label):
                item = next(items, None)
            if item is None:
                return
            self._copy_lines.add(self._comparison.copied(item))

    def _read_table(self) -> None:
        """Reads the table and the stream, while the copy is read."""
        sources, at = self._sources, self.copy.position.at
        if at is not None:
            sources.wait_until_complete(at)
        is_kept = self._since is not None and sources.retains(self._since, self._longest_scan)
        if not is_kept:
            # What leaves the stream during the scan has to be read before it.
            self._take(sources.records())
            self._check_covered()
        scan_table(self, self._table, pace=self._pace)
        if not self._comparison.has_position:
            self._copy_reading.result()  # what came to it until it was read has to be known
        self._take(sources.newer_records())
        self._copy_reading.result()
        if is_kept:
            self._check_covered()
        sources.check_not_ended()
        if not sources.exact:
            raise UsageError(INEXACT_ARCHIVE)

    def _check_covered(self) -> None:
        """Raises StreamError where changes left the stream before they were read."""
        # A shard whose position is by a number reports that itself.
        if self.copy.position.token is None and self._since is not None:
            try:
                self._sources.check_covers(self._since)
            except UsageError as error:
                raise StreamError(f"{_NO_ANSWER}the reading took too long: {error}") from None

    @property
    def _longest_scan(self) -> timedelta:
        """The longest time that the scan may take: its estimate is from a size some hours old."""
        limit, expected = self._pace.limit, self._limits.scan_time
        if limit is None:
            return expected
        return max(expected, timedelta(seconds=min(2 * self.read_units / limit, _LONGEST_SECONDS)))

    def on_items(self, images: Iterable[bytes | msgspec.Raw]) -> None:
        """Takes in a page of the table's items."""
        if self._copy_reading.done():
            self._copy_reading.result()  # an error is told at once
        for image in images:
            self._table_lines.add(self._comparison.scanned(image))
            self._scanned += 1
        share = min(0.99, self._pace.units / self.read_units)
        self._on_progress(VerifyProgress(self._scanned, self._pace.units, share))

    def _take(self, records: Iterable[Record]) -> None:
        at = self.copy.position.at
        after = None if at is None else at.replace(microsecond=0).timestamp() + 1
        for record in records:
            change = record.wire.dynamodb
            if after is not None:
                if change.ApproximateCreationDateTime is None:
                    raise StreamError("the changes have no times, so a second's end is unknown")
                if change.ApproximateCreationDateTime < after:
                    continue
            self._table_lines.add(_change_line(record))

    # Comparing

    def _compared(self) -> Verification:
        outcome = Verification(at=self.copy.position.at or self._sources.time)
        different: dict[bytes, _Item] = {}
        left = self._limits.max_difference_bytes
        for digest, lines in _by_item(heapq.merge(self._copy_lines, self._table_lines)):
            # Most often the copy's item and the table's, of one text.
            some = list(islice(lines, 3))
            outcome.items += 1
            if len(some) == 2 and some[0][_TEXT] == some[1][_TEXT] and some[1][_PART] == _TABLE:
                continue
            item = _Item(self._comparison)
            if item.take(chain(some, lines)):
                outcome.items -= item.here is None and not item.copies
                continue
            outcome.differing += 1
            left -= item.size
            if left >= 0 and len(different) < self._limits.max_differences:
                different[digest] = item
        outcome.not_compared = frozenset(self._comparison.not_compared)
        if different:
            outcome.found = sorted(self._told(different), key=lambda each: _encode(each.key))
        return outcome

    def _told(self, different: dict[bytes, _Item]) -> Iterator[DifferentItem]:
        """Yields items that differ, with the changes that they lack: all that are retained tell."""

        def matching(records: Sequence[WireRecord]) -> list[int]:
            keys = (_digest(_encode(identity(each.dynamodb.Keys))) for each in records)
            return [at for at, key in enumerate(keys) if key in different]

        again = self._sources.again()
        again.open(None, matching)
        past = SortedLines(self._limits.sorting_bytes)
        for record in again.records():
            line = _change_line(record)
            if line[:_KEY_BYTES] in different:
                past.add(line)
        for digest, lines in _by_item(past):
            yield different.pop(digest).told(lines)
        for item in different.values():
            yield item.told(())


def save_repair(found: Verification, copy: TableHandle, like: str, path: Path) -> int:
    """Writes the plan to make a copy equal, which `undo --apply` does; returns its items' number.

    An item that changes meanwhile is a conflict there. Raises UsageError.
    """
    about = copy.description
    header = RunHeader(about.arn, about.identity, found.at, like=like)
    steps = []
    for each in found.found:
        there, here = (each.there and bytes(each.there), each.here and bytes(each.here))
        steps.append(UndoStep(_encode(each.key), here, there, changes=0))
    save_plan(path, header, steps)
    return len(steps)


def _is_same(one: msgspec.Raw | None, other: msgspec.Raw | None) -> bool:
    return is_same(one and bytes(one), other and bytes(other))


def _image(raw: msgspec.Raw) -> msgspec.Raw | None:
    return None if bytes(raw) == _NOTHING else raw.copy()
