"""Print one line per change: when, what kind, which item."""

from datetime import datetime

from watcher import Record
from watcher.formatting.style import highlighted, paint, shown_time, table_prefix
from watcher.formatting.terminal import write_text
from watcher.formatting.text import printable_key, printable_wire_key
from watcher.records.page import RecordPage
from watcher.records.record import creation_time
from watcher.records.wire import is_by_ttl

BY_TTL = " (expired by TTL)"


def handle(record: Record) -> None:
    change, kind = record["dynamodb"], record["eventName"]
    start = beginning(record, change.get("ApproximateCreationDateTime"), kind)
    by_ttl = BY_TTL if kind == "REMOVE" and record.expired_by_ttl else ""
    write_text(f"{start}{highlighted(printable_key(change['Keys']))}{by_ttl}\n")


def handle_page(page: RecordPage) -> bool:
    """As `handle`, record by record."""
    lines = []
    starts: dict[tuple[str | None, float | None], str] = {}
    for wire in page.wires:
        change, kind = wire.dynamodb, wire.eventName
        seconds = change.ApproximateCreationDateTime
        start = starts.get((kind, seconds))
        if start is None:
            if kind is None:
                return False
            created = None if seconds is None else creation_time(seconds)
            start = starts[kind, seconds] = beginning(page, created, kind)
        by_ttl = BY_TTL if kind == "REMOVE" and is_by_ttl(wire) else ""
        lines.append(f"{start}{highlighted(printable_wire_key(change.Keys))}{by_ttl}\n")
    write_text("".join(lines))
    return True


def beginning(record: Record | RecordPage, created: datetime | None, kind: str) -> str:
    """Returns the line up to the key."""
    name = paint(f"{kind:^6}", kind)
    return f"{table_prefix(record)}[{shown_time(created)}] - {name} - "
