"""Print one line of JSON per change, exactly as the service sent it: ready for jq."""

import sys

from watcher import Record
from watcher.text import printable_json

on_a_terminal = sys.stdout.isatty()


def handle(record: Record) -> None:
    line = str(record.raw, "utf-8")
    sys.stdout.write((printable_json(line) if on_a_terminal else line) + "\n")
