"""Print one line per change: when, what kind, which item."""

from watcher import Record
from watcher.formatting.differences import BY_TTL, summary_beginning, summary_line
from watcher.formatting.text import printable, write_text
from watcher.formatting.values import key_text
from watcher.records.page import RecordPage
from watcher.records.record import creation_time
from watcher.records.wire import is_by_ttl


def handle(record: Record) -> None:
    write_text(f"{summary_line(record)}\n")


def handle_page(page: RecordPage) -> bool:
    """Prints a page's records as `handle` does, in one write."""
    lines = []
    starts: dict[tuple[str | None, float | None], str] = {}
    for wire in page.wire_records:
        change, kind = wire.dynamodb, wire.eventName
        seconds = change.ApproximateCreationDateTime
        start = starts.get((kind, seconds))
        if start is None:
            if kind is None:
                return False
            created = None if seconds is None else creation_time(seconds)
            start = starts[kind, seconds] = summary_beginning(page, created, kind)
        by_ttl = BY_TTL if kind == "REMOVE" and is_by_ttl(wire) else ""
        lines.append(f"{start}{printable(key_text(change.Keys))}{by_ttl}\n")
    write_text("".join(lines))
    return True
