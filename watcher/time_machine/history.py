"""An item's history: its changes, oldest first, and the item as it is now."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from datetime import datetime

import msgspec

from watcher.aws.config import AwsConfig
from watcher.aws.model import WireItem
from watcher.errors import StreamError
from watcher.records.diff import WireKey
from watcher.records.record import NativeItem, Record, image_of, native_item, wire_item
from watcher.records.redaction import Redaction, redaction
from watcher.records.wire import KeyValues
from watcher.streams.start_times import Moment
from watcher.time_machine.callers import Answer, Callers, Trail
from watcher.time_machine.item_keys import ItemKey
from watcher.time_machine.sources import Sources, past_time, records_until, start_time

logger = logging.getLogger("watcher")

_json = msgspec.json.encode


class History:
    """An item's history: iterating gives the records of its changes, oldest first."""

    def __init__(self, records: list[Record], gaps: list[str]) -> None:
        self.records = records
        self.gaps = gaps
        """One line for each stretch of time whose changes may be missing."""
        self.left_out = ""
        """What could not be read of the files, for the end of a sentence; "" where all was."""
        self.answers: list[Answer] = []
        """The callers of the records' changes, in their order; empty without a trail."""
        self.now: NativeItem | None = None
        """The item as it is now, in native values as in `record.new`; None where there is none."""
        self.now_wire: WireItem | None = None
        """The item as it is now, in wire types; None where there is none."""
        self.key: WireItem = {}
        """The item's key in wire types, binary values as bytes."""
        self.asked_at: datetime | None = None
        """The time when `now` was read; None where it was not, without a stream or permission."""

    def add_callers(self, trail: Trail, callers: Callers) -> None:
        """Finds who made the changes."""
        changes = [callers.add_change(each) for each in self.records]
        trail.read(callers)
        self.answers = [callers.answer(each) for each in changes]

    def redact(self, redaction: Redaction) -> None:
        """Takes out what nobody is to see; last, since changes and callers are found by the key."""
        self.records = list(map(redaction, self.records))
        if self.now_wire is not None:
            self.now_wire = msgspec.json.decode(redaction.item(_json(self.now_wire)))
            self.now = native_item(_json(self.now_wire))
        self.key = wire_item(redaction.item(image_of(self.key)))

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)


def history(
    *sources: str,
    key: KeyValues,
    start: Moment = "trim_horizon",
    until: Moment | None = None,
    who: str | None = None,
    redact: str | Iterable[str] | None = None,
    region: str | None = None,
    profile: str | None = None,
    endpoint_url: str | None = None,
) -> History:
    """Reads one item's history: each change, oldest first, and the item as it is now.

    `sources` are archives and files of `--print-json`, if any, and at last a stream; `key` is the
    item's whole key (`{"PK": "user-1"}`, or `["PK=user-1"]`); `until` is the last second that
    counts. `who` is a folder (or `s3://` URL) of CloudTrail's logs: `answers` then holds who made
    each change. `redact` works as in `watch()`. Changes that may be missing are a logged warning,
    and a line in `gaps`. Raises UsageError (a key, time or file), StreamError.
    """
    hidden = redaction(redact)
    first = start_time(start)
    last = None if until is None else past_time(until, "until")
    item_key, trail = ItemKey(key), None if who is None else Trail(who, AwsConfig(region, profile))
    opened = Sources.named(sources, AwsConfig(region, profile, endpoint_url))
    found = item_history(opened, item_key, first, last)
    if trail is not None:
        found.add_callers(trail, Callers(opened.table_arn, first, last))
    if hidden is not None:
        found.redact(hidden)
    return found


def item_history(
    sources: Sources,
    key: ItemKey,
    start: datetime | None,
    until: datetime | None = None,
) -> History:
    """Reads one item's history from these sources."""
    wire = _checked(sources, key)
    sources.open(start, key.matching_indexes, tells_expiry=True)
    records = [each for each in records_until(sources.records(), until) if key.matches_record(each)]
    found = History(records, sources.gaps)
    found.left_out = sources.left_out
    if sources.stream is not None and wire is not None:
        _read_current(found, sources, wire)
    return found


def _checked(sources: Sources, key: ItemKey) -> WireKey | None:
    """Checks the key before the reading; None where the role has no permission for the table."""
    if sources.stream is None:
        return None
    try:
        table = sources.stream.table.description
    except StreamError as error:
        logger.warning(f"Can't read the present item: {error}")
        return None
    return key.wire(table.types)


def _read_current(found: History, sources: Sources, key: WireKey) -> None:
    assert sources.stream is not None
    found.key = wire_item(_json(key))
    try:
        item = sources.stream.tables.get(sources.stream.table.name, found.key)
    except StreamError as error:
        logger.warning(f"Can't read the present item: {error}")
        return
    found.asked_at = datetime.now().astimezone()
    if item is not None:
        image = image_of(item)
        found.now_wire, found.now = msgspec.json.decode(image), native_item(image)
