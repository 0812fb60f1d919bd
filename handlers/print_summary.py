"""Print one line per change: when, what kind, which item."""

import sys

from watcher import Record
from watcher.printing.escaping import printable_key
from watcher.printing.style import highlighted, paint, shown_time, table_prefix


def handle(record: Record) -> None:
    change, kind = record["dynamodb"], record["eventName"]
    created = shown_time(change.get("ApproximateCreationDateTime"))
    name = paint(f"{kind:^6}", kind)
    key = printable_key(change["Keys"])
    by_ttl = " (expired by TTL)" if kind == "REMOVE" and record.expired_by_ttl else ""
    line = f"[{created}] - {name} - {highlighted(key)}{by_ttl}"
    sys.stdout.write(f"{table_prefix(record)}{line}\n")
