"""Print each change as a row of CSV, with the old and new values that differ."""

import sys

from watcher import Record
from watcher.formatting.differences import plain_differences
from watcher.formatting.plain_records import ordered_key
from watcher.formatting.rows import write_row
from watcher.formatting.style import time_text
from watcher.records.plain_json import plain_json

OPTIONS = {
    "csv_raw": (
        None,
        "CSV for programs: cells that a spreadsheet would run (=…) stay as they are",
    ),
}
NAMES = ("time", "kind", "by_ttl", "table", "key", "old", "new", "sequence_number")

raw = False
has_begun = False


def configure(csv_raw: bool = False) -> None:
    global raw
    raw = csv_raw


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
    write_row(sys.stdout, row, raw=raw)


def begin() -> None:
    """Writes the line of names, once: a file without changes has it too."""
    global has_begun
    if not has_begun:
        has_begun = True
        write_row(sys.stdout, NAMES, raw=raw)


def close() -> None:
    begin()
