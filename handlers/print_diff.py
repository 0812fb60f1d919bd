"""Print what changed, attribute by attribute: old -> new."""

import sys

from watcher import Record
from watcher.printing.differences import change_lines


def handle(record: Record) -> None:
    sys.stdout.write("\n".join(change_lines(record)) + "\n")
