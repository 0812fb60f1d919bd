"""Print each change as a row of CSV, with the old and new values that differ."""

import sys
from collections.abc import Iterable

import msgspec

from watcher import Record
from watcher.formatting.plain_records import ordered_key
from watcher.formatting.rows import write_row
from watcher.formatting.style import time_text
from watcher.records.diff import changed_attributes
from watcher.records.plain_json import plain_json

NAMES = ("time", "kind", "by_ttl", "table", "key", "old", "new", "sequence_number")

has_begun = False


def handle(record: Record) -> None:
    begin()
    change = record.wire.dynamodb
    key, old, new = (
        each or "" for each in plain_json([change.Keys, change.OldImage, change.NewImage])
    )
    if old and new:  # else the one image that there is, whole
        names = changed_attributes(record.wire) or ()
        old, new = only(old, names), only(new, names)
    row = (
        time_text(record.created_at),
        record.event_name,
        str(record.expired_by_ttl),
        record.table,
        ordered_key(key) if key else "",
        old,
        new,
        record.sequence_number,
    )
    write_row(sys.stdout, row)


def only(image: str, names: Iterable[str]) -> str:
    values = msgspec.json.decode(image, type=dict[str, msgspec.Raw])
    return msgspec.json.encode({each: values[each] for each in names if each in values}).decode()


def begin() -> None:
    """Writes the line of names, once: a file without changes has it too."""
    global has_begun
    if not has_begun:
        has_begun = True
        write_row(sys.stdout, NAMES)


def close() -> None:
    begin()
