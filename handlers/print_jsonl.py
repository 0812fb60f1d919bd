"""Print each change as plain JSON, a line each; numbers keep their digits."""

import sys

from watcher import Record
from watcher.printing.escaping import printable_json
from watcher.printing.plain_json import plain_line

on_a_terminal = sys.stdout.isatty()


def handle(record: Record) -> None:
    line = plain_line(record)
    sys.stdout.write((printable_json(line) if on_a_terminal else line) + "\n")
