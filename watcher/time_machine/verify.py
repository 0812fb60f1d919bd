"""Verifies that a copy is equal to its table, both at one position of the stream.

The stream is read from the copy's position on, beside a scan of the table: an item that was not
changed since is as the scan finds it, and of all others the changes tell every state. So it does
not matter who writes meanwhile, to the table or, where its position is not known, to the copy.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import zlib
from collections import deque
from collections.abc import (
    Callable,
    Collection,
    Container,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
    Set,
)
from concurrent.futures import Future
from contextlib import ExitStack
from copy import copy as shallow_copy
from datetime import datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import IO, Final, NamedTuple, Protocol, Self

import msgspec

from watcher.aws.model import CLOCKS_APART, WireItem
from watcher.aws.tables import ReadPace
from watcher.errors import DataLossError, StreamError, UsageError
from watcher.files import temporary_folder
from watcher.pull.call_pool import CallPool
from watcher.records.diff import ABSENT, WireKey, number_text
from watcher.records.record import Record
from watcher.records.wire import WireRecord
from watcher.streams.lineage import RETENTION
from watcher.time_machine.as_of import INEXACT_ARCHIVE
from watcher.time_machine.copied_items import (
    Cause,
    CauseKind,
    Change,
    CopyDifference,
    ItemHistory,
    copied_text,
    copy_differences,
    items_equal,
    wanted_text,
)
from watcher.time_machine.copies import Copy, item_of_image
from watcher.time_machine.item_keys import Identity, identity
from watcher.time_machine.limits import LIMITS, TimeMachineLimits
from watcher.time_machine.sources import Sources
from watcher.time_machine.table import TableHandle, scan_table
from watcher.time_machine.undo_log import RunHeader, save_plan
from watcher.time_machine.undo_plan import UndoStep, is_same

LAG: Final = timedelta(minutes=1)
"""The default of the longest time that a copy without a position may be behind."""


class DifferentItem(msgspec.Struct, frozen=True):
    """An item whose copy differs."""

    identity: Identity
    key: WireKey
    differences: list[CopyDifference]
    here: msgspec.Raw | None
    """The item as the table had it when it was read; None: it had none."""
    there: WireItem | None


class Verification(msgspec.Struct, kw_only=True):
    """The outcome of a comparison."""

    at: datetime
    """The service's time at the start of the reading, or the time as of which the copy is."""
    items: int = 0
    """The number of compared items."""
    sample: float = 1.0
    """Their share of all items."""
    differing: int = 0
    """The number of items that differ, also those that are not in `found`."""
    found: list[DifferentItem] = []
    """The first items that differ: the memory for them is limited."""
    not_compared: frozenset[str] = frozenset()
    """Attributes of the table for which the copy has no column."""


class VerifyProgress(NamedTuple):
    """The progress of the table's scan."""

    items: int
    units: float
    """The consumed read units."""
    share: float
    """The scanned share of the table, by DynamoDB's approximate size."""


class Part(Enum):
    """The place that a line is from."""

    COPY = "c"
    TABLE = "t"
    CHANGE = "r"
    PAST = "p"


_COPY: Final = ord(Part.COPY.value)
_CHANGE: Final = ord(Part.CHANGE.value)


class Line(msgspec.Struct, array_like=True):
    """A state read of an item: in the table, in the copy, or in a change."""

    item: Identity
    image: msgspec.Raw
    """The item, or what a change left of it."""
    part: Part
    change: str = ""
    """A change's sequence number."""
    kind: str = ""
    at: float | None = None
    old: msgspec.Raw = msgspec.Raw(b"null")


_NO_ANSWER: Final = "no answer, as changes are missing: "
_NOTHING: Final = b"null"
_line: Final = msgspec.json.Decoder(Line)
_encode: Final = msgspec.json.Encoder(order="sorted").encode
_shallow: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_SPLIT: Final = 16
_LONGEST_SECONDS: Final = 10 * RETENTION.total_seconds()
_HASHES: Final = 2**32
_KEY_BYTES: Final = 8
_DIGEST_BYTES: Final = 16
_KEY_END: Final = 2 * _KEY_BYTES
_DIGEST_END: Final = _KEY_END + 2 * _DIGEST_BYTES
NO_DIGEST: Final = b"-" * (2 * _DIGEST_BYTES)
"""In place of the digest of a line that has to be looked at."""


def hash_of(item: Identity) -> int:
    """Returns a number below 2**32 that is the same for an item on all sides, at any time."""
    return zlib.crc32(repr(item).encode("utf-8", "surrogatepass"))


def _key_hash(item: Identity) -> bytes:
    return hashlib.blake2b(_encode(item), digest_size=_KEY_BYTES).hexdigest().encode()


def packed(line: Line, digest: bytes = b"") -> bytes:
    """Returns the hash of the line's key, a digest of the item, the line's part, and the line."""
    # Line breaks between JSON's tokens mean nothing, and its strings hold none.
    text = _encode(line).replace(b"\n", b" ")
    head = _key_hash(line.item), digest or NO_DIGEST, line.part.value.encode()
    return b"%b%b%b%b\n" % (*head, text)


def unpacked(line: bytes) -> Line:
    """Returns the line."""
    return _line.decode(line[_DIGEST_END + 1 :])


class _Partition:
    """The states of some of the items, a packed line each, in a temporary file.

    Where the digests of both sides have one sum, and no line is without one, all items are equal.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._first = b""
        self.has_several = False
        """True where it has more than one item."""
        self._tables = self._copies = 0
        """The sums of the digests."""
        self._table_lines = 0
        self._is_unknown = False

    def add(self, line: bytes) -> None:
        """Writes a packed line."""
        self._file.write(line)
        key, digest = line[:_KEY_END], line[_KEY_END:_DIGEST_END]
        # Two threads: one reads the copy, and the other all else.
        if digest == NO_DIGEST:
            self._is_unknown = True
        elif line[_DIGEST_END] == _COPY:
            self._copies += int(digest, 16)
        else:
            self._tables += int(digest, 16)
            self._table_lines += 1
        if not self.has_several and self._first != key:
            self.has_several = self._first != b""
            self._first = key

    @property
    def size(self) -> int:
        """The bytes of its file."""
        return self._file.seek(0, os.SEEK_END)

    @property
    def equal_items(self) -> int | None:
        """The number of its items, if the sums tell that they are equal."""
        is_equal = self._tables == self._copies and not self._is_unknown
        return self._table_lines if is_equal else None

    def __iter__(self) -> Iterator[bytes]:
        self._file.seek(0)
        yield from self._file
        self._file.seek(0, os.SEEK_END)

    def unlike(self) -> tuple[Set[bytes], int]:
        """Returns the hashes of the keys whose digests don't tell, and the number of all others."""
        there: dict[bytes, bytes] = {}
        here: dict[bytes, bytes] = {}
        found: set[bytes] = set()
        for line in self:
            key, digest = line[:_KEY_END], line[_KEY_END:_DIGEST_END]
            side = there if line[_DIGEST_END] == _COPY else here
            if digest == NO_DIGEST or key in side:
                found.add(key)
            else:
                side[key] = digest
        found |= {key for key, digest in here.items() if there.get(key) != digest}
        found |= there.keys() - here.keys()
        return found, len(here.keys() - found)

    def lines(self, keys: Container[bytes]) -> Iterator[Line]:
        """Yields the lines of these keys; those of a copy's items first."""
        for is_copy in (True, False):
            for line in self:
                if (line[_DIGEST_END] == _COPY) is is_copy and line[:_KEY_END] in keys:
                    yield unpacked(line)


class _Partitions:
    """The states of all items, in temporary files by their keys: memory holds one at a time.

    One that is larger than `most` bytes is split before it is read, unless it is of one item.
    """

    def __init__(self, count: int, most: int, divisor: int = 1) -> None:
        self._count = count
        self._most = most
        self._divisor = divisor
        self._files = ExitStack()
        self._parts: list[_Partition] = []

    def __enter__(self) -> Self:
        folder = temporary_folder()
        self._parts = [
            _Partition(self._files.enter_context(tempfile.TemporaryFile(dir=folder)))
            for _ in range(self._count)
        ]
        return self

    def __exit__(self, *error: object) -> None:
        self._files.close()

    def add(self, line: bytes) -> None:
        """Writes a packed line to the partition of its key."""
        # Other digits of the hash than those that brought them together in a file to split.
        place = int(line[:_KEY_END], 16) // self._divisor % self._count
        self._parts[place].add(line)

    def changed(self) -> Iterator[Set[bytes]]:
        """Yields the hashes of the keys of items that changed, partition by partition."""
        for part in self._parts:
            yield {line[:_KEY_END] for line in part if line[_DIGEST_END] == _CHANGE}

    def __iter__(self) -> Iterator[_Partition]:
        for part in self._parts:
            is_large = part.size > self._most and part.has_several
            if is_large and part.equal_items is None and self._divisor < _HASHES:
                with _Partitions(_SPLIT, self._most, self._divisor * self._count) as smaller:
                    for line in part:
                        smaller.add(line)
                    yield from smaller
            else:
                yield part


class ComparedItem(msgspec.Struct):
    """The present knowledge of an item while its lines are read."""

    copied: int = 0
    there: msgspec.Raw | None = None
    here: msgspec.Raw | None = None
    """The item in the table as the last line so far has it."""
    changes: int = 0
    is_equal: bool = False
    """True where the copy has one of the states that it may have."""


class _RecentStates:
    """The newest of an item's changes, so many bytes of them."""

    def __init__(self, most: int) -> None:
        self.before: msgspec.Raw | None = None
        self.changes: deque[Change] = deque()
        self._left = most

    def add(self, line: Line) -> None:
        """Takes in a change, and drops the oldest for it."""
        if not self.changes:
            self.before = _image(line.old.copy())
        after = _image(line.image.copy())  # without the rest of the line
        self.changes.append(Change(line.change, line.kind, line.at, after))
        self._left -= len(bytes(line.image))
        while self._left < 0 and len(self.changes) > 1:
            self.before = self.changes.popleft().after
            self._left += len(bytes(self.before or _NOTHING))


class _Evidence:
    """The states of an item that differs."""

    def __init__(self, most: int) -> None:
        self.copied: list[msgspec.Raw] = []
        self.here: msgspec.Raw | None = None
        self.first = ""
        """The number of its first change behind the copy's position; empty where there is none."""
        self.states = _RecentStates(most)
        """The changes behind the copy's position that it may have, or the first one."""
        self.possible = 0
        self.past = _RecentStates(most)
        """All changes up to them that the sources hold."""

    def take(self, line: Line, is_possible: bool) -> None:
        """Takes in a line."""
        match line.part:
            case Part.COPY:
                self.copied = [*self.copied[:1], line.image]
            case Part.TABLE if not self.first:
                self.here = line.image
            case Part.CHANGE:
                self.here = _image(line.image)
                if not self.first or is_possible:
                    self.states.add(line)
                self.possible += is_possible
                self.first = self.first or line.change
            case Part.PAST:
                own = self.states.changes
                if not own or int(line.change) <= int(own[-1].number):
                    self.past.add(line)

    def history(
        self, read: Callable[[msgspec.Raw], WireItem], keys: Collection[str], *, whole: bool
    ) -> ItemHistory:
        """Returns the item's states; `whole` with those before the copy's position."""
        own, states = self.states.changes, self.past if whole else self.states
        changes = [*states.changes]
        if not own:
            # What was changed after the scan had read it does not count.
            read_at = [at for at, each in enumerate(changes) if _same(each.after, self.here)]
            changes = changes[: read_at[-1] + 1] if read_at else []
            before = states.before if changes else self.here
            return ItemHistory(before, changes, len(changes), len(changes), read, keys=keys)
        numbers = [each.number for each in changes]
        if not {each.number for each in own} <= {*numbers}:  # they have left retention meanwhile
            return self.history(read, keys, whole=False)
        certain = numbers.index(self.first) if self.first in numbers else 0
        possible = min(certain + self.possible, len(changes))
        return ItemHistory(states.before, changes, certain, possible, read, keys=keys)


class ItemComparison:
    """Decides whether an item of a copy is equal to the table's; picklable, if its copy is.

    `types` are those of the key's attributes. `ignore` are attributes that do not count. A
    `sample` is that part of the items, by a hash of their keys.
    """

    def __init__(
        self,
        copy: Copy,
        types: Mapping[str, str],
        *,
        table: str,
        ignore: Iterable[str] = (),
        sample: float = 1.0,
        limits: TimeMachineLimits = LIMITS,
    ) -> None:
        self.copy = copy
        self.columns: frozenset[str] | None = None
        """The attributes that the copy can hold; known once it is read."""
        self.names: set[str] = set()
        """Attributes of the table's items that were compared one by one."""
        self.ignore = frozenset(ignore)
        self.limits = limits
        self.types = types
        self._table = table
        self._sampled_hashes = round(sample * _HASHES)
        # Of several items only the digests' sums are compared: with a known hash, one who writes
        # into the copy could look for items that have the same.
        self._secret = os.urandom(_DIGEST_BYTES)
        position = copy.position
        self.has_position = position.token is not None or position.at is not None

    def of_part(self, part: Copy) -> Self:
        """Returns the same comparison with a part of the copy, for another process."""
        made = shallow_copy(self)
        made.copy, made.names = part, set()
        return made

    def is_sampled(self, item: Identity) -> bool:
        """Returns True for an item of the sample."""
        return self._sampled_hashes == _HASHES or hash_of(item) < self._sampled_hashes

    def copied(self, item: WireItem) -> bytes | None:
        """Returns a packed line of an item of the copy; None where the sample lacks it."""
        key = _key_in(item, self.types, self.copy.label)
        if not self.is_sampled(key):
            return None
        digest = self._digest(copied_text(self._without_ignored(item), self.copy.form))
        return packed(Line(key, msgspec.Raw(_encode(item)), Part.COPY), digest)

    def scanned(self, image: bytes | msgspec.Raw) -> bytes | None:
        """Returns a packed line of an item of the table; None where the sample lacks it."""
        item = item_of_image(image)
        key = _key_in(item, self.types, self._table)
        if not self.is_sampled(key):
            return None
        there = self._without_ignored(self.copy.as_copied(item))
        digest = self._digest(wanted_text(there, self.copy.form))
        return packed(Line(key, msgspec.Raw(image), Part.TABLE), digest)

    def compare(self, found: ComparedItem, line: Line) -> None:
        """Compares the copy's item with the state of a line."""
        match line.part:
            case Part.COPY:
                found.copied += 1
                found.there = line.image
            case Part.TABLE if not found.changes:
                found.here = line.image
            case Part.CHANGE:
                if not found.changes:
                    found.is_equal = self._is_equal(_image(line.old), found.there)
                if not found.is_equal and self.is_possible(line):
                    found.is_equal = self._is_equal(_image(line.image), found.there)
                found.changes += 1
                found.here = _image(line.image)

    def differs(self, found: ComparedItem) -> bool:
        """Returns the answer for an item all of whose lines were compared."""
        if found.here is not None and self.columns is not None:
            self.names.update(_shallow.decode(found.here))
        if not found.changes:
            found.is_equal = self._is_equal(found.here, found.there)
        return found.copied > 1 or not found.is_equal

    def is_possible(self, change: Line) -> bool:
        """Returns True for a change behind the copy's position that it may have nevertheless."""
        if not self.has_position:
            return True
        copied_at = self.copy.position.copied_at
        if copied_at is None or change.at is None:
            return False
        return change.at <= (copied_at + self.limits.clock_error).timestamp()

    def differences(self, history: ItemHistory, there: WireItem | None) -> list[CopyDifference]:
        """Returns how the copy's item differs from all states that it may have, and why."""
        return copy_differences(history, there, self.copy.form, self._compared_names)

    def as_copied(self, image: msgspec.Raw) -> WireItem:
        """Returns an item of the table as the copy would have it."""
        return self._without_ignored(self.copy.as_copied(item_of_image(image)))

    def as_read(self, there: msgspec.Raw) -> WireItem:
        """Returns the copy's item."""
        return self._without_ignored(msgspec.json.decode(there))

    @property
    def not_compared(self) -> frozenset[str]:
        """Attributes of the table for which the copy has no column."""
        columns = self.names if self.columns is None else self.columns
        return frozenset(self.names) - columns - self.ignore

    def _is_equal(self, state: msgspec.Raw | None, there: msgspec.Raw | None) -> bool:
        if state is None or there is None:
            return state is there
        return state == there or items_equal(
            self.as_copied(state), self.as_read(there), self.copy.form, self._compared_names
        )

    @property
    def _compared_names(self) -> frozenset[str] | None:
        return None if self.columns is None else self.columns - self.ignore

    def _digest(self, text: bytes | None) -> bytes:
        if text is None:
            return NO_DIGEST
        made = hashlib.blake2b(text, digest_size=_DIGEST_BYTES, key=self._secret)
        return made.hexdigest().encode()

    def _without_ignored(self, item: WireItem) -> WireItem:
        if not self.ignore:
            return item
        return {name: value for name, value in item.items() if name not in self.ignore}


class Tally(NamedTuple):
    """Items that were compared elsewhere, and whose lines are not needed here."""

    equal: int
    differing: int
    names: Collection[str] = ()
    """See `ItemComparison.names`."""


class Elsewhere(Protocol):
    """An engine that reads both sides beyond this process, and compares what it can there."""

    def read(
        self, comparison: ItemComparison, table: TableHandle, read_limit: float | None
    ) -> frozenset[str] | None:
        """Reads both sides once, now; returns the copy's columns."""

    def unlike(
        self, comparison: ItemComparison, changed: Iterable[Set[bytes]]
    ) -> Iterator[bytes | Tally]:
        """Yields the packed lines of items that differ or have changed, and the others' number."""


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
        sample: float = 1.0,
        on_progress: Callable[[VerifyProgress], object] = lambda progress: None,
        limits: TimeMachineLimits = LIMITS,
        elsewhere: Elsewhere | None = None,
    ) -> None:
        if sources.stream is None:
            raise UsageError("name the stream of the table to compare the copy with")
        self._sources = sources
        self._stream = sources.stream
        self.copy = copy
        self._lag = lag
        self._sample = sample
        self._on_progress = on_progress
        self._limits = limits
        self._elsewhere = elsewhere
        self._table = self._stream.table
        types = self._table.description.types
        self._comparison = ItemComparison(
            copy, types, table=self.table, ignore=ignore, sample=sample, limits=limits
        )
        self._partitions = _Partitions(limits.partitions, limits.partition_bytes)
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
        with self._partitions:
            try:
                if self._elsewhere is None:
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
        for item in self.copy.items():
            if self._is_broken_off:
                return
            if line := self._comparison.copied(item):
                self._partitions.add(line)

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
        if self._elsewhere is None:
            scan_table(self, self._table, pace=self._pace)
        else:
            comparison, limit = self._comparison, self._pace.limit
            comparison.columns = self._elsewhere.read(comparison, self._table, limit)
            self._copy_reading.set_result(None)
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
            if line := self._comparison.scanned(image):
                self._partitions.add(line)
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
            line = _line_of(record, Part.CHANGE)
            if self._comparison.is_sampled(line.item):
                self._partitions.add(packed(line))

    # Comparing

    def _compared(self) -> Verification:
        at = self.copy.position.at or self._sources.time
        outcome = Verification(at=at, sample=self._sample)
        comparison = self._comparison
        if self._elsewhere is None:
            comparison.columns = self.copy.columns
        else:
            self._take_unlike(self._elsewhere, outcome)
        different: set[Identity] = set()
        for part in self._partitions:
            equal = part.equal_items
            unlike: Set[bytes] = frozenset()
            if equal is None:
                unlike, equal = part.unlike()
            outcome.items += equal
            items: dict[Identity, ComparedItem] = {}
            for line in part.lines(unlike) if unlike else ():
                comparison.compare(items.setdefault(line.item, ComparedItem()), line)
            for key, found in items.items():
                outcome.items += found.here is not None or found.copied > 0
                if comparison.differs(found):
                    outcome.differing += 1
                    if len(different) < self._limits.max_differences:
                        different.add(key)
        outcome.not_compared = comparison.not_compared
        if different:
            outcome.found = sorted(self._explained(different), key=lambda each: each.identity)
        return outcome

    def _take_unlike(self, elsewhere: Elsewhere, outcome: Verification) -> None:
        for found in elsewhere.unlike(self._comparison, self._partitions.changed()):
            if isinstance(found, Tally):
                outcome.items += found.equal + found.differing
                outcome.differing += found.differing
                self._comparison.names.update(found.names)
            else:
                self._partitions.add(found)

    def _explained(self, different: Set[Identity]) -> Iterator[DifferentItem]:
        """Yields items that differ, with the causes that all retained changes tell."""
        self._read_past(different)
        left = self._limits.max_difference_bytes
        keys = {_key_hash(each) for each in different}
        for part in self._partitions:
            items: dict[Identity, _Evidence] = {}
            for line in part.lines(keys):
                if line.item in different:
                    found = items.setdefault(line.item, _Evidence(self._limits.history_bytes))
                    found.take(line, self._comparison.is_possible(line))
            for key, found in items.items():
                left -= sum(len(bytes(each)) for each in (*found.copied, found.here or b""))
                if left >= 0:
                    yield self._different(key, found)

    def _different(self, key: Identity, found: _Evidence) -> DifferentItem:
        names, comparison = dict(key), self._comparison
        there = comparison.as_read(found.copied[0]) if found.copied else None
        if len(found.copied) > 1:
            differences = [CopyDifference(None, ABSENT, ABSENT, Cause(CauseKind.REPEATED))]
        else:
            for whole in (True, False):
                history = found.history(comparison.as_copied, comparison.types, whole=whole)
                if differences := comparison.differences(history, there):
                    break
        return DifferentItem(
            key,
            {name: {kind: names[name]} for name, kind in comparison.types.items()},
            differences,
            None if found.here is None else found.here.copy(),
            None if not found.copied else msgspec.json.decode(found.copied[0]),
        )

    def _read_past(self, wanted: Set[Identity]) -> None:
        """Reads all that the sources hold of these items."""

        def matching(records: Sequence[WireRecord]) -> list[int]:
            return [at for at, each in enumerate(records) if identity(each.dynamodb.Keys) in wanted]

        again = self._sources.again()
        again.open(None, matching)
        for record in again.records():
            line = _line_of(record, Part.PAST)
            if line.item in wanted:
                self._partitions.add(packed(line))


def save_repair(found: Verification, copy: TableHandle, like: str, path: Path) -> int:
    """Writes the plan to make a copy equal, which `undo --apply` does; returns its items' number.

    An item that changes meanwhile is a conflict there. Raises UsageError.
    """
    about = copy.description
    header = RunHeader(about.arn, about.identity, found.at, like=like)
    steps = []
    for each in found.found:
        there = None if each.there is None else _encode(each.there)
        here = None if each.here is None else bytes(each.here)
        steps.append(UndoStep(_encode(each.key), here, there, there, changes=0))
    save_plan(path, header, steps)
    return len(steps)


def _line_of(record: Record, part: Part) -> Line:
    change = record.wire.dynamodb
    if record.images_missing:
        view = change.StreamViewType or "none"
        raise StreamError(
            f"a {record.event_name} lacks an image (view type {view}); comparing a copy "
            "needs NEW_AND_OLD_IMAGES"
        )
    return Line(
        identity(change.Keys),
        change.NewImage or msgspec.Raw(_NOTHING),
        part,
        change=change.SequenceNumber,
        kind=record.event_name,
        at=change.ApproximateCreationDateTime,
        old=change.OldImage or msgspec.Raw(_NOTHING),
    )


def _same(one: msgspec.Raw | None, other: msgspec.Raw | None) -> bool:
    if one is None or other is None:
        return one is other
    return bytes(one) == bytes(other) or is_same(bytes(one), bytes(other))


def _image(raw: msgspec.Raw) -> msgspec.Raw | None:
    return None if bytes(raw) == _NOTHING else raw


def _key_in(item: WireItem, types: Mapping[str, str], label: str) -> Identity:
    """Returns an item's identity. Raises UsageError where it lacks a part of the key."""
    found = []
    for name, kind in types.items():
        value = item.get(name)
        if value is None or "NULL" in value:
            raise UsageError(
                f"{label} has an item without the key attribute {name}: where it has another "
                f"name there, --map {name}=COLUMN",
                "with_",
            )
        (text,) = value.values()
        found.append((name, number_text(str(text)) if kind == "N" else str(text)))
    return tuple(sorted(found))
