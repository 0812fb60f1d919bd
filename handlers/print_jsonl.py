"""Print each change as plain JSON, a line each; numbers keep their digits."""

import sys

from watcher import Record
from watcher.formatting.plain_records import plain_line
from watcher.formatting.text import printable_json

on_a_terminal = sys.stdout.isatty()


def handle(record: Record) -> None:
    line = plain_line(record)
    sys.stdout.write((printable_json(line) if on_a_terminal else line) + "\n")
