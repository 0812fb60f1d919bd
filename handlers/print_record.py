"""Print each change in full, the item before and after."""

import sys

from watcher import Record
from watcher.printing.escaping import printable_value
from watcher.printing.style import paint, table_prefix, time_text


def handle(record: Record) -> None:
    kind = paint(record.event_name, record.event_name)
    lines = [f"{kind} {time_text(record.created_at)} shard {record.shard_id}"]
    lines.append(f"  key {printable_value(record.key)}")
    if record.old is not None:
        lines.append(f"  old {printable_value(record.old)}")
    if record.new is not None:
        lines.append(f"  new {printable_value(record.new)}")
    before = table_prefix(record)
    sys.stdout.write("".join(f"{before}{line}\n" for line in lines))
