"""What happened to an item: its changes, oldest first, and how it is now."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

import msgspec

from watcher.errors import StreamError
from watcher.past.item_keys import OneKey, WireKey
from watcher.past.sources import Sources
from watcher.past.times import begin, made_by, moment
from watcher.record.boto3_shape import image_of, native_item, wire_item
from watcher.record.record import Record
from watcher.service.connection import Connection

logger = logging.getLogger("watcher")

_json = msgspec.json.encode


class History:
    """An item's life: iterating gives the records of its changes, oldest first."""

    def __init__(self, records: list[Record], gaps: list[str]) -> None:
        self.records = records
        self.gaps = gaps
        """Where changes may be missing: one line each."""
        self.now: dict[str, Any] | None = None
        """The item as it is, native values as in `record.new`; None where there is none (now)."""
        self.now_wire: dict[str, Any] | None = None
        """The same in wire types."""
        self.key: dict[str, Any] = {}
        """The item's key in wire types, binary as bytes."""
        self.asked_at: datetime | None = None
        """When the table was asked for it; None where it was not: without a stream or the right."""

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)


def history(
    *sources: str,
    key: Iterable[str] | Mapping[str, Any],
    start: str | datetime = "trim_horizon",
    until: str | datetime | None = None,
    region: str | None = None,
    profile: str | None = None,
    endpoint_url: str | None = None,
) -> History:
    """What happened to one item: each change, oldest first, and how it is now.

    `sources` are archives and files of `--print-json`, if any, and at last a stream; `key` is the
    item's whole key (`{"PK": "user-1"}`, or `["PK=user-1"]`); `until` is the last moment that
    counts. What may be missing is logged as a warning, and in `gaps`. Raises UsageError (key, a
    time or a file), StreamError.
    """
    opened = Sources.named(sources, Connection(region, profile, endpoint_url))
    last = None if until is None else moment(until, "until")
    return timeline(opened, OneKey(key), begin(start), last)


def timeline(
    sources: Sources, key: OneKey, start: datetime | None, until: datetime | None = None
) -> History:
    """The same of sources that are open."""
    wire = _checked(sources, key)
    sources.begin(start)
    records = [each for each in made_by(sources.records(), until) if key.is_of(each)]
    made = History(records, sources.gaps)
    if sources.stream is not None and wire is not None:
        _look(made, sources, wire)
    return made


def _checked(sources: Sources, key: OneKey) -> WireKey | None:
    """The key, checked before the reading; None where the role may not ask the table."""
    if sources.stream is None:
        return None
    try:
        table = sources.stream.table.like
    except StreamError as error:
        logger.warning(f"How the item is now can't be told: {error}")
        return None
    return key.wire(table.types)


def _look(made: History, sources: Sources, key: WireKey) -> None:
    assert sources.stream is not None
    made.key = wire_item(_json(key))
    try:
        item = sources.stream.tables.get(sources.stream.table.name, made.key)
    except StreamError as error:
        logger.warning(f"How the item is now can't be told: {error}")
        return
    made.asked_at = datetime.now().astimezone()
    if item is not None:
        image = image_of(item)
        made.now_wire, made.now = msgspec.json.decode(image), native_item(image)
