"""Verifies that a copy is equal to its table, both at one position of the stream.

The stream is read from the copy's position on, beside a scan of the table: an item that was not
changed since is as the scan finds it, and of all others the changes tell every state. So it does
not matter who writes meanwhile, to the table or, where its position is not known, to the copy.
"""

from __future__ import annotations

import logging
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import IO, Final

import msgspec

from watcher.aws.model import CLOCKS_APART
from watcher.errors import StreamError, UsageError
from watcher.records.diff import ABSENT
from watcher.records.keys import WireKey, number_text
from watcher.records.record import Record
from watcher.records.wire import WireRecord
from watcher.time_machine.as_of import INEXACT_ARCHIVE, scan_segments
from watcher.time_machine.copied_items import (
    Cause,
    CauseKind,
    Change,
    CopyDifference,
    Item,
    ItemHistory,
    copy_differences,
)
from watcher.time_machine.copies import Copy
from watcher.time_machine.item_keys import Identity, identity, identity_in
from watcher.time_machine.limits import LIMITS, TimeMachineLimits
from watcher.time_machine.sources import Sources, TableHandle
from watcher.time_machine.undo_log import RunHeader, save_plan
from watcher.time_machine.undo_plan import UndoStep, is_same

logger = logging.getLogger("watcher")

LAG: Final = timedelta(minutes=1)
"""How far a copy without a position may be behind by default."""


class DifferentItem(msgspec.Struct, frozen=True):
    """An item whose copy differs."""

    identity: Identity
    key: WireKey
    differences: list[CopyDifference]
    here: msgspec.Raw | None
    """The item as it was in the table when that was read; None where there was none."""
    there: Item | None


class Verification(msgspec.Struct, kw_only=True):
    """The outcome of a comparison."""

    at: datetime
    """The service's time when the reading began, or the time that the copy shows."""
    items: int = 0
    """How many items were compared."""
    differing: int = 0
    """How many of them differ, also those that are not in `found`."""
    found: list[DifferentItem] = []
    """The items that differ, as far as memory is to hold them."""
    not_compared: frozenset[str] = frozenset()
    """Attributes of the table for which the copy has no column."""


class _Line(msgspec.Struct, array_like=True):
    """What was read of an item: in the table, in the copy, or a change of it."""

    item: Identity
    image: msgspec.Raw
    """The item, or what a change left of it."""
    change: str = ""
    """A change's sequence number."""
    kind: str = ""
    at: float | None = None
    old: msgspec.Raw = msgspec.Raw(b"null")
    is_copied: bool = False


_NOTHING: Final = b"null"
_line: Final = msgspec.json.Decoder(_Line)
_encode: Final = msgspec.json.Encoder().encode
_shallow: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


class _Partitions:
    """What was read of all items, in temporary files by their keys: memory holds one at a time."""

    def __init__(self, count: int) -> None:
        self._files: list[IO[bytes]] = [tempfile.TemporaryFile() for _ in range(count)]

    def add(self, line: _Line) -> None:
        """Writes a line to the partition of its key."""
        place = zlib.crc32(repr(line.item).encode("utf-8", "surrogatepass")) % len(self._files)
        # Line breaks between JSON's tokens mean nothing, and its strings hold none.
        self._files[place].write(_encode(line).replace(b"\n", b" ") + b"\n")

    def __iter__(self) -> Iterator[Iterator[_Line]]:
        for file in self._files:
            file.seek(0)
            yield map(_line.decode, file)
            file.close()


class _Found(msgspec.Struct):
    """All that was read of one item."""

    scanned: msgspec.Raw | None = None
    copied: list[msgspec.Raw] = []
    changes: list[_Line] = []

    def take(self, line: _Line) -> None:
        """Takes in what was read of it."""
        if line.is_copied:
            self.copied.append(line.image)
        elif line.change:
            self.changes.append(line)
        else:
            self.scanned = line.image

    @property
    def here(self) -> msgspec.Raw | None:
        """The item in the table when all was read."""
        return _image(self.changes[-1].image) if self.changes else self.scanned


class Verifier:
    """Compares a copy with the table of these sources.

    `lag` is how old a change may be that a copy without a position lacks. `ignore` are attributes
    that do not count. Raises UsageError, StreamError, DataLossError.
    """

    def __init__(
        self,
        sources: Sources,
        copy: Copy,
        *,
        lag: timedelta = LAG,
        ignore: Iterable[str] = (),
        read_limit: float | None = None,
        limits: TimeMachineLimits = LIMITS,
    ) -> None:
        if sources.stream is None:
            raise UsageError("name the stream of the table that the copy is compared with")
        self._sources = sources
        self._stream = sources.stream
        self._copy = copy
        self._lag = lag
        self._ignore = frozenset(ignore)
        self._read_limit = read_limit
        self._limits = limits
        self._table = self._stream.table
        self._types = self._table.description.types
        self._partitions = _Partitions(limits.partitions)
        self._scanned = 0
        self._scanned_bytes = 0
        self._scan_began = 0.0
        self._names: set[str] = set()

    @property
    def table(self) -> str:
        """The table's ARN."""
        return self._table.description.arn

    @property
    def read_units(self) -> int:
        """An estimate of the read units that the scan of the table takes."""
        return max(1, -(-self._table.description.size // 4096))

    def run(self) -> Verification:
        """Reads both sides and returns how they differ."""
        self._open()
        self._read_copy()
        self._read_table()
        return self._compared()

    # Reading

    def _open(self) -> None:
        position = self._copy.position
        if position.token is not None:
            if position.token.stream_arn != self._stream.arn:
                raise UsageError(
                    f"it is a copy of {position.token.stream_arn}, not of {self._stream.arn}",
                    "with_",
                )
            self._sources.open_behind(position.token)
        elif position.at is not None:
            self._sources.open(position.at.replace(microsecond=0))
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
            and description.created - created < self._limits.created_together
        ):
            self._sources.open(None)  # there was no table before its stream
        else:
            self._sources.open(start.replace(microsecond=0))

    def _read_copy(self) -> None:
        for item in self._copy.items():
            key = _key_in(item, self._types, self._copy.label)
            self._partitions.add(_Line(key, msgspec.Raw(_encode(item)), is_copied=True))

    def _read_table(self) -> None:
        sources, at = self._sources, self._copy.position.at
        if at is not None:
            sources.wait_until_complete(at)
        self._take(sources.records())
        segments = min(
            self._limits.max_segments,
            1 + self._table.description.size // self._limits.segment_bytes,
        )
        self._scan_began = self._stream.clock.monotonic()
        scan_segments(
            self,
            lambda segment: self._table.tables.scan(self._table.name, segment, segments),
            segments,
        )
        self._take(sources.newer_records())
        if at is not None:
            sources.check_covers(at.replace(microsecond=0))
        sources.check_not_ended()
        if not sources.exact:
            raise UsageError(INEXACT_ARCHIVE)

    def on_items(self, images: Iterable[bytes | msgspec.Raw]) -> None:
        """Takes in a page of the table's items."""
        before = self._scanned
        for image in images:
            self._partitions.add(_Line(identity_in(image, self._types), msgspec.Raw(image)))
            self._scanned += 1
            self._scanned_bytes += len(bytes(image))
        step = self._limits.progress_items
        if self._scanned // step > before // step:
            logger.info(f"scanned: {self._scanned:,} items")
        if self._read_limit is not None:
            clock = self._stream.clock
            due = self._scan_began + self._scanned_bytes / 4096 / self._read_limit
            if (wait := due - clock.monotonic()) > 0:
                clock.sleep(wait)

    def _take(self, records: Iterable[Record]) -> None:
        at = self._copy.position.at
        after = None if at is None else at.replace(microsecond=0).timestamp() + 1
        for record in records:
            change = record.wire.dynamodb
            if after is not None:
                if change.ApproximateCreationDateTime is None:
                    raise StreamError("the changes have no times: a second's end can't be told")
                if change.ApproximateCreationDateTime < after:
                    continue
            self._partitions.add(_line_of(record))

    # Comparing

    def _compared(self) -> Verification:
        at = self._copy.position.at or self._sources.time
        outcome = Verification(at=at)
        candidates: dict[Identity, _Found] = {}
        for lines in self._partitions:
            items: dict[Identity, _Found] = {}
            for line in lines:
                items.setdefault(line.item, _Found()).take(line)
            for key, found in items.items():
                outcome.items += found.here is not None or bool(found.copied)
                if self._differs(found):
                    outcome.differing += 1
                    if len(candidates) < self._limits.told_differences:
                        candidates[key] = found
        if self._copy.columns is not None:
            outcome.not_compared = frozenset(self._names) - self._copy.columns - self._ignore
        if candidates:
            told = self._explained(candidates)
            outcome.found = sorted(told, key=lambda each: each.identity)
        return outcome

    def _differs(self, found: _Found) -> bool:
        if found.here is not None and self._copy.columns is not None:
            self._names.update(_shallow.decode(found.here))
        if not found.changes and len(found.copied) == 1 and found.copied[0] == found.scanned:
            return False
        return bool(self._differences(found, found.changes, 0))

    def _differences(
        self, found: _Found, changes: Sequence[_Line], certain: int
    ) -> list[CopyDifference]:
        if len(found.copied) > 1:
            return [CopyDifference(None, ABSENT, ABSENT, Cause(CauseKind.REPEATED))]
        there = (
            self._without_ignored(msgspec.json.decode(found.copied[0])) if found.copied else None
        )
        history = ItemHistory(
            _image(changes[0].old) if changes else found.scanned,
            [Change(each.change, each.kind, each.at, _image(each.image)) for each in changes],
            certain,
            certain + self._possible(found.changes),
            self._as_copied,
        )
        columns = self._copy.columns
        names = None if columns is None else columns - self._ignore
        return copy_differences(history, there, self._copy.form, names)

    def _as_copied(self, image: msgspec.Raw) -> Item:
        return self._without_ignored(self._copy.as_copied(image))

    def _without_ignored(self, item: Item) -> Item:
        if not self._ignore:
            return item
        return {name: value for name, value in item.items() if name not in self._ignore}

    def _possible(self, changes: Sequence[_Line]) -> int:
        """Returns how many of the changes behind the copy's position it may have nevertheless."""
        position = self._copy.position
        if position.token is None and position.at is None:
            return len(changes)
        if position.copied_at is None:
            return 0
        until = (position.copied_at + self._limits.clock_error).timestamp()
        return sum(each.at is not None and each.at <= until for each in changes)

    def _explained(self, candidates: Mapping[Identity, _Found]) -> Iterator[DifferentItem]:
        """Yields the items that differ, with the causes that all retained changes tell."""
        past = self._past(candidates)
        for key, found in candidates.items():
            changes = _until(past.get(key, []), found)
            first = found.changes[0].change if found.changes else None
            certain = next(
                (at for at, each in enumerate(changes) if each.change == first), len(changes)
            )
            differences = self._differences(found, changes, certain) or self._differences(
                found, found.changes, 0
            )
            names = dict(key)
            yield DifferentItem(
                key,
                {name: {kind: names[name]} for name, kind in self._types.items()},
                differences,
                found.here,
                msgspec.json.decode(found.copied[0]) if found.copied else None,
            )

    def _past(self, wanted: Mapping[Identity, _Found]) -> dict[Identity, list[_Line]]:
        """Reads all that the sources hold of these items."""

        def matching(records: Sequence[WireRecord]) -> list[int]:
            return [at for at, each in enumerate(records) if identity(each.dynamodb.Keys) in wanted]

        again = self._sources.anew()
        again.open(None, matching)
        past: dict[Identity, list[_Line]] = {}
        for record in again.records():
            line = _line_of(record)
            if line.item in wanted:
                past.setdefault(line.item, []).append(line)
        return past


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


def _line_of(record: Record) -> _Line:
    change = record.wire.dynamodb
    if record.images_missing:
        view = change.StreamViewType or "none"
        raise StreamError(
            f"a {record.event_name} lacks an image (view type {view}): it takes "
            "NEW_AND_OLD_IMAGES to compare a copy"
        )
    return _Line(
        identity(change.Keys),
        change.NewImage or msgspec.Raw(_NOTHING),
        change=change.SequenceNumber,
        kind=record.event_name,
        at=change.ApproximateCreationDateTime,
        old=change.OldImage or msgspec.Raw(_NOTHING),
    )


def _until(past: list[_Line], found: _Found) -> list[_Line]:
    """Leaves out the changes that were made after the comparison had read the item."""
    if found.changes:
        last = int(found.changes[-1].change)
        known = {each.change for each in past}
        kept = [each for each in past if int(each.change) <= last]
        # Some may have left retention meanwhile.
        return kept if all(each.change in known for each in found.changes) else found.changes
    for end in range(len(past), 0, -1):
        if _same_image(_image(past[end - 1].image), found.scanned):
            return past[:end]
    return []


def _same_image(one: msgspec.Raw | None, other: msgspec.Raw | None) -> bool:
    if one is None or other is None:
        return one is other
    return bytes(one) == bytes(other) or is_same(bytes(one), bytes(other))


def _image(raw: msgspec.Raw) -> msgspec.Raw | None:
    return None if bytes(raw) == _NOTHING else raw


def _key_in(item: Item, types: Mapping[str, str], label: str) -> Identity:
    """Returns the identity of a copy's item. Raises UsageError where it lacks a part of the key."""
    missing = [name for name in types if name not in item or "NULL" in item[name]]
    if missing:
        raise UsageError(
            f"{label} has an item without the key attribute {missing[0]}: where it has another "
            f"name there, --map {missing[0]}=COLUMN",
            "with_",
        )
    texts = {name: str(next(iter(item[name].values()))) for name in types}
    return tuple(
        sorted(
            (name, number_text(texts[name]) if kind == "N" else texts[name])
            for name, kind in types.items()
        )
    )
