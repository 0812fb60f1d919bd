"""Verifies that a copy is equal to its table, both at one position of the stream.

The stream is read from the copy's position on, beside a scan of the table: an item that was not
changed since is as the scan finds it, and of all others the changes tell every state. So it does
not matter who writes meanwhile, to the table or, where its position is not known, to the copy.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from datetime import datetime, timedelta
from itertools import groupby
from typing import Final, NamedTuple

import msgspec

from watcher.aws.model import CLOCKS_APART, WireItem
from watcher.aws.tables import ReadPace
from watcher.call_pool import CallPool
from watcher.errors import DataLossError, StreamError, UsageError
from watcher.records.diff import ABSENT, WireKey
from watcher.records.record import Record
from watcher.records.wire import WireRecord
from watcher.streams.lineage import RETENTION
from watcher.time_machine.as_of import INEXACT_ARCHIVE
from watcher.time_machine.copied_items import (
    Value,
    differing_names,
    reads_as,
)
from watcher.time_machine.copies import Copy, item_of_image, readable
from watcher.time_machine.item_keys import Identity, identity, identity_of, images_of
from watcher.time_machine.sorted_lines import SortedLines
from watcher.time_machine.sources import COARSEST_STAMP, CREATED_TOGETHER, Sources
from watcher.time_machine.table import LONGEST_SCAN, scan_table
from watcher.time_machine.undo_plan import NOTHING, is_same

LAG: Final = timedelta(minutes=1)
"""The default of the longest time that a copy without a position may be behind."""


class Change(msgspec.Struct, array_like=True):
    """A change of an item."""

    number: str
    """The change's sequence number."""
    kind: str
    at: float | None
    """The change's time in epoch seconds."""
    old: msgspec.Raw = NOTHING
    """The item before it and after it, as the wire's JSON, until its cause is found."""
    new: msgspec.Raw = NOTHING


class CopyDifference(NamedTuple):
    """One difference of a copy."""

    attribute: str | None
    """The attribute; None for an item that is only on one side, or several times in the copy."""
    in_copy: Value = ABSENT
    in_table: Value = ABSENT
    missing: Change | None = None
    """The last change that took away what the copy has; None where none explains it."""


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
    """The service's time at the start of the reading."""
    items: int = 0
    """The number of compared items."""
    differing: int = 0
    """The number of items that differ, also those that are not in `found`."""
    found: list[DifferentItem] = []
    """The first items that differ, by their keys: the memory for them is limited."""
    not_compared: frozenset[str] = frozenset()
    """Attributes of the table for which the copy has no column."""


# A line is the digest of its item's key, the letter of where it is from, for a change its number
# with zeros before it, and then JSON. So sorted lines bring together what belongs to an item: its
# copies, the scanned item, its changes in their order.
_COPY: Final = b"0"
_TABLE: Final = b"1"
_CHANGE: Final = b"2"
_KEY_BYTES: Final = 32
_NUMBER_DIGITS: Final = 64  # the longest numbers, Kinesis's, have 56
_PART: Final = slice(_KEY_BYTES, _KEY_BYTES + 1)
_ITEM: Final = slice(_PART.stop, -1)
_CHANGE_JSON: Final = slice(_PART.stop + _NUMBER_DIGITS, -1)
_NO_ANSWER: Final = "no answer, as changes are missing: "
_LONGEST_SECONDS: Final = 10 * RETENTION.total_seconds()
# The largest difference between the clock of a copy's machine and the stream's.
_CLOCK_ERROR: Final = timedelta(seconds=10)
MOST_DIFFERENCES: Final = 10_000
"""The items that differ that are held in memory, each with its cause."""
MOST_DIFFERENCE_BYTES: Final = 16 * 1024 * 1024
"""The most bytes of those items."""
_encode: Final = msgspec.json.Encoder().encode
_change: Final = msgspec.json.Decoder(Change)


def _digest(item: Identity) -> bytes:
    return hashlib.blake2b(_encode(item), digest_size=_KEY_BYTES // 2).hexdigest().encode()


def _line(item: Identity, part: bytes, text: bytes) -> bytes:
    # Line breaks between JSON's tokens mean nothing, and its strings hold none.
    return b"%b%b%b\n" % (_digest(item), part, text.replace(b"\n", b" "))


def _change_line(record: Record) -> bytes:
    change = record.wire.dynamodb
    old, new = (msgspec.Raw(each or NOTHING) for each in images_of(record, "compare a copy"))
    number, at = change.SequenceNumber, change.ApproximateCreationDateTime
    part = _CHANGE + number.zfill(_NUMBER_DIGITS).encode()
    made = Change(number, record.event_name, at, old, new)
    return _line(identity(change.Keys), part, _encode(made))


class _Item(msgspec.Struct):
    """An item of both sides, as its lines tell it."""

    copies: int = 0
    there: msgspec.Raw | None = None
    here: msgspec.Raw | None = None
    """The item in the table as the last line has it."""
    state: msgspec.Raw | None = None
    """The state that the copy's item differs least from; the newest of several."""
    differing: int = 0
    """The number of attributes in which it does; 0 where only one side has an item."""
    until: int | None = None
    """The number of the last change before that state; None where it is as the scan had it."""
    missing: dict[str | None, Change] = {}
    """For each difference, the last change that took away what the copy has."""
    as_scanned: dict[str | None, Change] = {}
    """The same, up to the state that the scan had."""

    @property
    def size(self) -> int:
        """About how many bytes it takes to keep it."""
        state = None if self.state is self.here else self.state
        return sum(len(bytes(each)) for each in (self.there, self.here, state) if each)


class Verifier:
    """Compares a copy with the table of these sources.

    `lag` is how old a change may be that a copy without a position lacks; attributes to `ignore` do
    not count. `on_progress` takes the number of scanned items, the read units used, and the scanned
    share of the table by DynamoDB's approximate size.
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
        on_progress: Callable[[int, float, float], object] = lambda items, units, share: None,
    ) -> None:
        if sources.stream is None:
            raise UsageError("name the stream of the table to compare the copy with")
        self._sources = sources
        self._stream = sources.stream
        self.copy = copy
        self._lag = lag
        self._ignore = frozenset(ignore)
        self._on_progress = on_progress
        self.table = self._stream.table
        """The table."""
        self._types = self.table.description.types
        position = copy.position
        self._has_position = position.token is not None
        self._copied_until = None
        if position.copied_at is not None:
            self._copied_until = (position.copied_at + _CLOCK_ERROR).timestamp()
        # Two threads: one reads the copy, and the other all else.
        self._copy_lines = SortedLines()
        self._table_lines = SortedLines()
        self._not_compared: set[str] = set()
        self._pace = ReadPace(read_limit, self._stream.clock)
        self._scanned = 0
        self._copy_reading: Future[None] = Future()
        self._is_broken_off = False
        self._since: datetime | None = None
        """The time of the first change that is needed, about; None where it is not known."""

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
        else:
            self._open_before()
        self._sources.check_view_type("compare a copy")

    def _open_before(self) -> None:
        """Opens the stream at a time up to which a copy has all changes, if it keeps up."""
        listing = self._stream.backlog(None, strict=False).listing
        # The service's time: with that of a clock here that is late, a copy could lack anything.
        start = listing.time - self._lag - COARSEST_STAMP - CLOCKS_APART
        description, created = self.table.description, listing.created
        if (
            created is not None
            and created > start
            and created - description.created < CREATED_TOGETHER
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
            name = self._identity(item, self.copy.label)
            self._copy_lines.add(_line(name, _COPY, _encode(item)))

    def _read_table(self) -> None:
        """Reads the table and the stream, while the copy is read."""
        sources = self._sources
        is_kept = self._since is not None and sources.retains(self._since, self._longest_scan)
        if not is_kept:
            # What leaves the stream during the scan has to be read before it.
            self._take(sources.records())
            self._check_covered()
        scan_table(self.table, self._take_items, self._pace)
        if not self._has_position:
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
        if not self._has_position and self._since is not None:
            try:
                self._sources.check_covers(self._since)
            except UsageError as error:
                raise StreamError(f"{_NO_ANSWER}the reading took too long: {error}") from None

    @property
    def _longest_scan(self) -> timedelta:
        """The longest time that the scan may take: its estimate is from a size some hours old."""
        limit = self._pace.limit
        if limit is None:
            return LONGEST_SCAN
        seconds = min(2 * self.table.read_units / limit, _LONGEST_SECONDS)
        return max(LONGEST_SCAN, timedelta(seconds=seconds))

    def _take_items(self, images: Iterable[bytes | msgspec.Raw]) -> None:
        """Takes in a page of the table's items."""
        if self._copy_reading.done():
            self._copy_reading.result()  # an error is told at once
        columns = self.copy.columns
        for image in images:
            item = item_of_image(image)
            if columns is not None:
                self._not_compared.update(item.keys() - columns - self._ignore)
            name = self._identity(item, self.table.description.arn)
            self._table_lines.add(_line(name, _TABLE, bytes(image)))
            self._scanned += 1
        share = min(0.99, self._pace.units / self.table.read_units)
        self._on_progress(self._scanned, self._pace.units, share)

    def _take(self, records: Iterable[Record]) -> None:
        for record in records:
            self._table_lines.add(_change_line(record))

    def _identity(self, item: WireItem, label: str) -> Identity:
        """Returns an item's identity. Raises UsageError where it lacks a part of the key."""
        for name in self._types:
            if "NULL" in item.get(name, {"NULL": True}):
                text = f"{label} has an item without the key attribute {name}"
                raise UsageError(text, "with_")
        # A copy may have a number of the key as text, and binary values always.
        return identity_of(
            {
                name: {kind: str(next(iter(item[name].values())))}
                for name, kind in self._types.items()
            }
        )

    # Comparing

    def _compared(self) -> Verification:
        outcome = Verification(at=self._sources.time)
        different: dict[bytes, _Item] = {}
        bytes_left = MOST_DIFFERENCE_BYTES
        for digest, lines in groupby(
            heapq.merge(self._copy_lines, self._table_lines), lambda line: line[:_KEY_BYTES]
        ):
            item = _Item()
            is_right = self._is_right(item, lines)
            outcome.items += bool(item.copies) or item.here is not None or not is_right
            if is_right:
                continue
            outcome.differing += 1
            bytes_left -= item.size
            if bytes_left >= 0 and len(different) < MOST_DIFFERENCES:
                different[digest] = item
        outcome.not_compared = frozenset(self._not_compared)
        if different:
            self._explain(different)
            found = map(self._different, different.values())
            outcome.found = sorted(found, key=lambda each: _encode(each.key))
        return outcome

    def _is_right(self, item: _Item, lines: Iterable[bytes]) -> bool:
        """Takes in an item's lines; returns True if its copy has a state that it may have."""
        there: WireItem | None = None
        is_right = has_changes = False
        for line in lines:
            if line[_PART] == _COPY:
                item.copies += 1
                item.there = msgspec.Raw(line[_ITEM])
                there = self._read(item.there)
            elif line[_PART] == _TABLE:
                item.here = msgspec.Raw(line[_ITEM])
            else:
                change = _change.decode(line[_CHANGE_JSON])
                if not has_changes:
                    before = int(change.number) - 1
                    is_right = self._has_state(item, _image(change.old), there, before)
                    has_changes = True
                item.here = _image(change.new)
                if not is_right and self._may_have(change):
                    is_right = self._has_state(item, item.here, there, int(change.number))
        if not has_changes:
            is_right = self._has_state(item, item.here, there, None)
        return is_right and item.copies < 2

    def _has_state(
        self, item: _Item, state: msgspec.Raw | None, there: WireItem | None, until: int | None
    ) -> bool:
        """Returns True if the copy has a state; notes the one from which it differs least."""
        wanted = self._as_copied(state)
        differing = 0
        if wanted is None or there is None:
            if wanted is there:
                return True
        elif not (differing := len(differing_names(wanted, there, self.copy.form))):
            return True
        if not item.differing or 0 < differing <= item.differing:
            item.state, item.differing, item.until = state, differing, until
        return False

    def _may_have(self, change: Change) -> bool:
        """Returns True for a change behind the copy's position that it may have nevertheless."""
        if not self._has_position:
            return True
        at, until = change.at, self._copied_until
        return until is not None and at is not None and at <= until

    def _as_copied(self, image: msgspec.Raw | None) -> WireItem | None:
        """Returns an item of the table as the copy would have it."""
        return None if image is None else self._counted(self.copy.as_copied(item_of_image(image)))

    def _read(self, there: msgspec.Raw) -> WireItem:
        """Returns the copy's item."""
        return self._counted(msgspec.json.decode(there))

    def _counted(self, item: WireItem) -> WireItem:
        """Returns an item without the attributes that do not count."""
        if not self._ignore:
            return item
        return {name: value for name, value in item.items() if name not in self._ignore}

    def _explain(self, different: dict[bytes, _Item]) -> None:
        """Finds the changes that the copy lacks, of all that are retained."""

        def matching(records: Sequence[WireRecord]) -> list[int]:
            keys = (_digest(identity(each.dynamodb.Keys)) for each in records)
            return [at for at, key in enumerate(keys) if key in different]

        again = self._sources.again()
        again.open(None, matching)
        for record in again.records():
            line = _change_line(record)
            if line[:_KEY_BYTES] in different:
                self._note(different[line[:_KEY_BYTES]], _change.decode(line[_CHANGE_JSON]))

    def _note(self, item: _Item, change: Change) -> None:
        """Takes in an item's next change, that may be missing."""
        if item.until is not None and int(change.number) > item.until:
            return
        old, new = _image(change.old), _image(change.new)
        before, after = map(self._as_copied, (old, new))
        names, there, _ = self._differing(item)
        for name in names:
            is_there = name is None or before is not None
            if is_there and self._has(before, there, name) and not self._has(after, there, name):
                item.missing[name] = Change(change.number, change.kind, change.at)
        # Changes behind the scanned state were made after it was read.
        if item.until is None and is_same(new or NOTHING, item.here or NOTHING):
            item.as_scanned = dict(item.missing)

    def _differing(
        self, item: _Item
    ) -> tuple[Sequence[str | None], WireItem | None, WireItem | None]:
        """Returns in what an item differs (None: as a whole), its copy, and what was wanted."""
        there = None if item.there is None else self._read(item.there)
        wanted = self._as_copied(item.state)
        if item.copies > 1 or there is None or wanted is None:
            return [None], there, wanted
        return differing_names(wanted, there, self.copy.form), there, wanted

    def _different(self, item: _Item) -> DifferentItem:
        """Returns how a copy differs from the state that it should have, and what it lacks."""
        names, there, wanted = self._differing(item)
        missing = item.as_scanned if item.until is None else item.missing
        differences = [
            CopyDifference(name, _value(there, name), _value(wanted, name), missing.get(name))
            for name in names
        ]
        known = item.there or item.here or item.state or msgspec.Raw(b"{}")
        texts = dict(self._identity(msgspec.json.decode(known), self.copy.label))
        key = {name: {kind: texts[name]} for name, kind in self._types.items()}
        return DifferentItem(key, differences, item.here, item.there, item.copies)

    def _has(self, item: WireItem | None, there: WireItem | None, name: str | None) -> bool:
        """Returns True where an item has what the copy has: the attribute, or (None) all."""
        if name is None and (item is None or there is None):
            return item is there
        if name is None:
            return not differing_names(item or {}, there or {}, self.copy.form)
        return reads_as(_value(item, name), _value(there, name), self.copy.form)


def _value(item: WireItem | None, name: str | None) -> Value:
    return ABSENT if item is None or name is None else item.get(name, ABSENT)


def _image(raw: msgspec.Raw) -> msgspec.Raw | None:
    return None if raw == NOTHING else raw.copy()
