"""What happened to an item: its changes, oldest first, and how it is now."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from watcher.aws.config import AwsConfig
from watcher.errors import StreamError
from watcher.records.record import Record, image_of, native_item, wire_item
from watcher.time_machine.exports import Baseline
from watcher.time_machine.item_keys import ItemKey, WireKey
from watcher.time_machine.sources import Sources
from watcher.time_machine.times import past_time, records_until, start_time

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
        self.exported_at: datetime | None = None
        """When a baseline has it as `exported_wire`; None without one."""
        self.exported_wire: dict[str, Any] | None = None
        """How it was then, in wire types; None where there was none."""

    def add_export(self, baseline: Baseline, key: ItemKey) -> None:
        """How a baseline has the item."""
        images = (line.NewImage for line in baseline.changed() if key.matches_image(line.Keys))
        found = next(images, None)
        if found is None:
            found = next(filter(key.matches_image, baseline.items()), msgspec.Raw())
        self.set_export(baseline.time, found, key)

    def set_export(self, time: datetime, image: msgspec.Raw | str | None, key: ItemKey) -> None:
        """How an export of that time has the item; an empty image where there was none."""
        self.exported_at = time
        there = bool(image if isinstance(image, str) else image and bytes(image))
        self.exported_wire = msgspec.json.decode(image or b"") if there else None
        self.key = wire_item(_json(key.known))

    def before_export(self) -> int:
        """How many of its records were made before the baseline; 0 without one."""
        end = self.exported_at
        times = (record.created_at for record in self.records)
        return 0 if end is None else sum(time is not None and time < end for time in times)

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)


def history(
    *sources: str,
    key: Iterable[str] | Mapping[str, Any],
    start: str | datetime = "trim_horizon",
    until: str | datetime | None = None,
    baseline: str | Sequence[str] = (),
    region: str | None = None,
    profile: str | None = None,
    endpoint_url: str | None = None,
) -> History:
    """What happened to one item: each change, oldest first, and how it is now.

    `sources` are archives and files of `--print-json`, if any, and at last a stream; `key` is the
    item's whole key (`{"PK": "user-1"}`, or `["PK=user-1"]`); `until` is the last moment that
    counts; `baseline` is the folder (or `s3://` URL) of a table's export, and of incremental ones
    after it: how the item was then stands among its changes. What may be missing is logged as a
    warning, and in `gaps`. Raises UsageError (key, a time or a file), StreamError.
    """
    opened = Sources.named(sources, AwsConfig(region, profile, endpoint_url))
    last = None if until is None else past_time(until, "until")
    places = [baseline] if isinstance(baseline, str) else list(baseline)
    exports = Baseline(places, AwsConfig(region, profile)) if places else None
    return timeline(opened, ItemKey(key), start_time(start), last, exports)


def timeline(
    sources: Sources,
    key: ItemKey,
    start: datetime | None,
    until: datetime | None = None,
    baseline: Baseline | None = None,
) -> History:
    """The same of sources that are open."""
    wire = _checked(sources, key)
    if baseline is not None and sources.stream is not None and wire is not None:
        baseline.check_table(sources.stream.table.description)
    sources.open(start, key.matching_indexes)
    records = [each for each in records_until(sources.records(), until) if key.matches_record(each)]
    made = History(records, sources.gaps)
    if baseline is not None:
        made.add_export(baseline, key)
    if sources.stream is not None and wire is not None:
        _look(made, sources, wire)
    return made


def _checked(sources: Sources, key: ItemKey) -> WireKey | None:
    """The key, checked before the reading; None where the role may not ask the table."""
    if sources.stream is None:
        return None
    try:
        table = sources.stream.table.description
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
