"""Print each change as a row of aligned columns, for people."""

import shutil
import sys

from watcher import Record
from watcher.formatting.differences import change_text
from watcher.formatting.style import (
    are_tables_shown,
    paint,
    shown_table,
    time_of_day,
    time_text,
)
from watcher.formatting.text import cell_width, padded, write_text
from watcher.formatting.values import printable_key

MOST = 40
"""A column is as wide as the longest text in it so far, up to this."""
NARROW = 80
"""The fewest columns with room for dates and whole keys."""

on_a_terminal = sys.stdout.isatty()
widths: list[int] = []


def handle(record: Record) -> None:
    kind = "TTL" if record.expired_by_ttl else record.event_name
    time = time_text(record.created_at)
    time = time_of_day(time) if columns() < NARROW else time
    cells = [time, kind, printable_key(record["dynamodb"]["Keys"])]
    names = ["TIME", "KIND", "KEY"]
    if are_tables_shown():
        cells.insert(2, shown_table(record))
        names.insert(2, "TABLE")
    if not widths:
        widths[:] = [len(cells[0]), 6, *(16 for _ in names[2:])]
        fit(cells)
        write_text(row(names, "CHANGES") + "\n")
    fit(cells)
    line = row(cells, change_text(record))
    start = sum(widths[:1]) + 2
    end = start + len(kind)
    write_text(line[:start] + paint(line[start:end], record.event_name))
    write_text(line[end:] + "\n")


def fit(cells: list[str]) -> None:
    most = min(MOST, columns() // 2)
    widths[:] = [
        max(width, min(cell_width(cell), most)) for width, cell in zip(widths, cells, strict=True)
    ]


def columns() -> int:
    """Returns the terminal's width; None elsewhere: lines are as wide as they need."""
    return shutil.get_terminal_size().columns if on_a_terminal else sys.maxsize


def row(cells: list[str], changes: str) -> str:
    """Returns one line, cut at the terminal's edge so that columns stay aligned."""
    texts = [padded(cell, width) for cell, width in zip(cells, widths, strict=True)]
    line = "  ".join([*texts, changes]).rstrip()
    return line if len(line) <= columns() else line[: columns() - 1] + "…"
