"""Print what changed, attribute by attribute: old -> new."""

import sys

from watcher import Record
from watcher.formatting.differences import change_lines
from watcher.formatting.style import highlighted, table_prefix


def handle(record: Record) -> None:
    before = table_prefix(record)
    sys.stdout.write("".join(f"{before}{highlighted(line)}\n" for line in change_lines(record)))
