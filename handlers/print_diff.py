"""Print what changed, attribute by attribute: old -> new."""

from watcher import Record
from watcher.formatting.differences import change_lines
from watcher.formatting.style import table_prefix
from watcher.formatting.text import write_text


def handle(record: Record) -> None:
    before = table_prefix(record)
    write_text("".join(f"{before}{line}\n" for line in change_lines(record)))
