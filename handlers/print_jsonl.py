"""Print each change as one line of plain JSON; numbers keep their digits."""

from watcher import Record
from watcher.formatting.plain_records import plain_line
from watcher.formatting.text import write_json


def handle(record: Record) -> None:
    line = plain_line(record)
    write_json(line + "\n")
