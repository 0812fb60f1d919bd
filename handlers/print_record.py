"""Print each change in full, the item before and after."""

from watcher import Record
from watcher.formatting.differences import BY_TTL, shown_item
from watcher.formatting.style import paint, table_prefix, time_text
from watcher.formatting.text import write_text


def handle(record: Record) -> None:
    kind = paint(record.event_name, record.event_name)
    by_ttl = BY_TTL if record.expired_by_ttl else ""
    lines = [f"{kind} {time_text(record.created_at)} shard {record.shard_id}{by_ttl}"]
    keys = record.key
    lines.append(f"  key {shown_item(keys, keys)}")
    if record.old is not None:
        lines.append(f"  old {shown_item(record.old, keys)}")
    if record.new is not None:
        lines.append(f"  new {shown_item(record.new, keys)}")
    before = table_prefix(record)
    write_text("".join(f"{before}{line}\n" for line in lines))
