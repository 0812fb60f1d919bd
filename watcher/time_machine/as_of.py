"""The items of a table as they were at a time in the past.

An item's state then is the old image of its first change afterwards; without a change since, it is
the item as it is now. So a scan may take any time beside any writes: an item that changed since
then, before or during the scan, is taken from the changes, which are read past the scan's end.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import groupby
from typing import Final

import msgspec

from watcher.aws.config import AwsConfig
from watcher.aws.model import CLOCKS_APART
from watcher.errors import StreamError, UsageError
from watcher.records.record import NativeItem, Record, image_of, native_item, wire_item
from watcher.records.redaction import Redaction, redaction
from watcher.records.wire import KeyValues
from watcher.streams.start_times import Moment
from watcher.time_machine.exports import Export, ExportLine, full_export
from watcher.time_machine.item_keys import Identity, ItemKey, identity, identity_in, removes_nothing
from watcher.time_machine.sorted_lines import SortedLines
from watcher.time_machine.sources import Sources, past_time
from watcher.time_machine.table import LONGEST_SCAN, scan_table

logger = logging.getLogger("watcher")

_encode: Final = msgspec.json.Encoder().encode
_SPACES: Final = bytes.maketrans(b"\t\n", b"  ")
_MOST_TURNS: Final = 10**19

INEXACT_ARCHIVE: Final = (
    "this archive holds plain JSON, which does not tell a set from a list nor binary from text: "
    "items out of it can't be given with their types"
)
"""The message where a user asks for wire types that an archive does not hold."""


class ItemsAsOf:
    """A table's items at a time, by key; iterating gives native values, as `record.new` does.

    It can be iterated again. What memory does not hold of the images lies in temporary files.
    """

    def __init__(self, at: datetime, key_names: Iterable[str] = ()) -> None:
        self.at = at
        """The second whose end counts: its own changes are in."""
        self.key_names = tuple(key_names)
        """The key's attributes; of an archive alone they are known from its first change on."""
        self.redaction: Redaction | None = None
        """Hides parts of the items."""
        self.exact = True
        """False where types are lost: an archive's plain JSON does not tell a set from a list."""
        # A line is an item's key, a rank and its image. Of an item, the lowest rank counts.
        self._lines = SortedLines()
        self._turn = 0

    def __iter__(self) -> Iterator[NativeItem]:
        return map(native_item, self.images())

    def images(self) -> Iterator[bytes]:
        """Yields the items as the wire's JSON, `{"PK": {"S": "user-1"}, …}`."""
        parts = (line[:-1].split(b"\t", 2) for line in self._lines)
        for _, lines in groupby(parts, lambda each: each[0]):
            _, _, image = next(lines)
            if image:
                yield bytes(self.redaction.item(image)) if self.redaction else image

    def on_change(self, record: Record, *, is_earlier: bool) -> None:
        """Takes in a change: the last one up to the time counts, or the first one after it."""
        image = image_after(record) if is_earlier else image_before(record)
        self._keep(identity(record.wire.dynamodb.Keys), b"0", image, is_last=is_earlier)

    def on_items(self, images: Iterable[bytes | msgspec.Raw]) -> None:
        """Takes in items as they are now, or were at a baseline's time. Raises KeyError."""
        for image in images:
            item = (
                identity_in(image, self.key_names) if self.key_names else (("", str(self._turn)),)
            )
            self._keep(item, b"1", bytes(image))

    def on_lines(self, lines: Iterable[ExportLine]) -> None:
        """Takes in the changed items of an incremental export: those of the last one count."""
        for line in lines:
            self._keep(identity(line.Keys), b"0", bytes(line.NewImage), is_last=True)

    def _keep(self, item: Identity, source: bytes, image: bytes, *, is_last: bool = False) -> None:
        self.key_names = self.key_names or tuple(name for name, _ in item if name)
        self._turn += 1
        turn = _MOST_TURNS - self._turn if is_last else self._turn
        # In JSON, tabs and line breaks between tokens mean nothing, and strings hold none.
        image = image.translate(_SPACES)
        self._lines.add(b"%b\t%b%020d\t%b\n" % (_encode(item), source, turn, image))


def exported_items(exports: Sequence[Export], key_names: Iterable[str]) -> Iterator[bytes]:
    """Yields a table's items at the end of the last one of these exports, the first a full one."""
    full, *later = exports
    images = (line.Item for line in full.lines())
    if not later:
        return map(bytes, images)
    found = ItemsAsOf(later[-1].time, key_names)
    found.on_items(images)
    for each in later:
        found.on_lines(each.lines())
    return found.images()


def image_before(record: Record) -> bytes:
    """Returns the item before a change; empty where there was none. Raises StreamError."""
    has_one = record.event_name != "INSERT" and not removes_nothing(record)
    return _image(record, record.wire.dynamodb.OldImage, has_one, "old")


def image_after(record: Record) -> bytes:
    """Returns the item after a change; empty where there is none. Raises StreamError."""
    return _image(record, record.wire.dynamodb.NewImage, record.event_name != "REMOVE", "new")


def as_of(
    *sources: str,
    at: Moment,
    key: KeyValues | None = None,
    baseline: str | None = None,
    redact: str | Iterable[str] | None = None,
    region: str | None = None,
    profile: str | None = None,
    endpoint_url: str | None = None,
) -> ItemsAsOf:
    """Reconstructs a table's items (or the one of this key) as of the end of the second `at`.

    `sources` are a stream, and before it archives and files for changes older than its retention.
    With a `baseline`, the folder (or `s3://` URL) of a table's full export, archives and files
    alone are enough, and the table is not read. `redact` works as in `watch()`. Raises UsageError
    (a time in the future, or before what the sources hold), StreamError (a stream without old
    images), DataLossError (changes in between are gone).
    """
    hidden = redaction(redact)
    then = past_time(at, "at")
    one = None if key is None else ItemKey(key)
    export = None
    if baseline is not None:  # an endpoint is DynamoDB's, not S3's
        export = full_export(baseline, AwsConfig(region, profile))
    opened = Sources.named(sources, AwsConfig(region, profile, endpoint_url), strict=True)
    found = items_as_of(opened, then, one, export)
    found.redaction = hidden
    return found


def items_as_of(
    sources: Sources,
    at: datetime,
    key: ItemKey | None = None,
    baseline: Export | None = None,
) -> ItemsAsOf:
    """Reconstructs a table's items from these sources; see `as_of`."""
    at = at.replace(microsecond=0)
    if baseline is not None:
        return _on_baseline(sources, at, key, baseline)
    if sources.stream is None:
        raise UsageError(
            "an archive holds only changes: name its stream, too, or give an export of the table "
            "with --baseline"
        )
    table = sources.stream.table
    types = table.description.types
    wire = None if key is None else key.wire(types)
    found = ItemsAsOf(at, types)
    sources.open(at, None if key is None else key.matching_indexes)
    sources.wait_until_complete(at)
    if not sources.retains(at, LONGEST_SCAN):
        _take(found, sources.records(), key)
        sources.check_covers(at)
    if wire is not None:
        item = table.tables.get(table.name, wire_item(_encode(wire)))
        found.on_items([] if item is None else [image_of(item)])
    else:
        scan_table(table, found.on_items)
    _take(found, sources.newer_records(), key)
    sources.check_covers(at)
    sources.check_not_ended()
    found.exact = sources.exact
    return found


def _on_baseline(
    sources: Sources,
    at: datetime,
    key: ItemKey | None,
    baseline: Export,
) -> ItemsAsOf:
    """Applies changes to a baseline: backwards from a later one, forwards from an earlier one.

    Forwards it begins a little before the baseline's time: an image after a change is right,
    whether the baseline has it already or not.
    """
    found = ItemsAsOf(at)
    first = min(at, baseline.time.replace(microsecond=0))
    if sources.stream is not None:
        table = sources.stream.table.description
        found.key_names = tuple(table.types)
        if key is not None:
            key.wire(table.types)
        baseline.check_table(table)
    start = first if first == at else first - CLOCKS_APART
    sources.open(start, None if key is None else key.matching_indexes)
    if sources.stream is not None:
        sources.wait_until_complete(at)
    _take(found, sources.records(), key, is_later=baseline.time.timestamp() < at.timestamp() + 1)
    sources.check_covers(first)
    sources.warn_if_ends_before(max(at, baseline.time))
    try:
        images = (line.Item for line in baseline.lines())
        found.on_items(each for each in images if key is None or key.matches_image(each))
    except KeyError as error:
        text = f"it belongs to another table: its items have no {error.args[0]}"
        raise UsageError(text, "baseline", baseline.location) from None
    found.exact = sources.exact
    return found


def _take(
    found: ItemsAsOf, records: Iterable[Record], key: ItemKey | None, *, is_later: bool = False
) -> None:
    """Takes in the changes on one side of the time.

    Where the time `is_later` than the items that the changes apply to, those are the changes before
    its second ends; else they are the changes stamped with a later second.
    """
    after = found.at.timestamp() + 1
    for record in records:
        created = record.wire.dynamodb.ApproximateCreationDateTime
        if created is None:
            raise StreamError("the changes have no times, so an item's past is unknown")
        if key is not None and not key.matches_record(record):
            continue
        if is_later == (created < after):
            found.on_change(record, is_earlier=is_later)


def _image(record: Record, raw: msgspec.Raw, has_one: bool, which: str) -> bytes:
    image = bytes(raw)
    if has_one and not image:
        view = record.wire.dynamodb.StreamViewType or "none"
        raise StreamError(
            f"a {record.event_name} has no {which} image (view type {view}): set "
            f"NEW_AND_OLD_IMAGES or {which.upper()}_IMAGE on the stream"
        )
    return image
