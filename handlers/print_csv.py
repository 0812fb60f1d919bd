"""Print each change as a row of CSV, with the old and new values that differ."""

import sys

from watcher import Record
from watcher.formatting.differences import plain_differences
from watcher.formatting.plain_records import ordered_key
from watcher.formatting.rows import write_row
from watcher.formatting.style import time_text
from watcher.records.plain_json import plain_json

NAMES = ("time", "kind", "by_ttl", "table", "key", "old", "new", "sequence_number")

has_begun = False


def handle(record: Record) -> None:
    begin()
    (key,) = plain_json([record.wire.dynamodb.Keys])
    old, new = plain_differences(record)
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


def begin() -> None:
    """Writes the line of names, once: a file without changes has it too."""
    global has_begun
    if not has_begun:
        has_begun = True
        write_row(sys.stdout, NAMES)


def close() -> None:
    begin()
