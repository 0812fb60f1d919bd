"""Print each change in full: kind, time, key, and the item before and after."""

import sys

from watcher import Record
from watcher.text import printable_value


def handle(record: Record) -> None:
    created = record.created_at.isoformat(timespec="seconds") if record.created_at else ""
    lines = [f"{record.event_name} {created} shard {record.shard_id}"]
    lines.append(f"  key {printable_value(record.key)}")
    if record.old is not None:
        lines.append(f"  old {printable_value(record.old)}")
    if record.new is not None:
        lines.append(f"  new {printable_value(record.new)}")
    sys.stdout.write("\n".join(lines) + "\n")
