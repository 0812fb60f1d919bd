"""Writes rows of text: as CSV, or as a table whose columns fit their widest cell."""

from __future__ import annotations

import csv
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import IO

from watcher.files import is_terminal
from watcher.formatting.text import cell_width, padded, printable, write_text

# Excel, LibreOffice and Google Sheets run cells that begin with these, full-width signs included:
# https://owasp.org/www-community/attacks/CSV_Injection
_RUNS = re.compile(r"[=+\-@\t\r\n＝＋－＠]")  # noqa: RUF001 (the full-width ones)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
# A table's widths are measured on this many of its first rows.
_SAMPLE = 1000
_GAP = 2
_MIN_WIDTH = 4


def write_csv(file: IO[str], names: Sequence[str], rows: Iterable[Sequence[str]]) -> int:
    """Writes rows below a line of names; returns their number.

    Item data may come from strangers: a cell that a spreadsheet would run gets an apostrophe.
    """
    write_row(file, names)
    count = 0
    for row in rows:
        write_row(file, row)
        count += 1
    return count


def write_row(file: IO[str], row: Sequence[str]) -> None:
    """Writes one row of CSV; see `write_csv`."""
    # A lone carriage return ends a line for many readers, and Python leaves it unquoted.
    is_quoted = any("\r" in cell for cell in row)
    if is_terminal(file):  # escaped, so that a row stays on its line
        row = [*map(printable, row)]
    written = [*map(_inert, row)]
    if is_quoted:
        csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_ALL).writerow(written)
    else:
        csv.writer(file, lineterminator="\n").writerow(written)


def _inert(cell: str) -> str:
    return f"'{cell}" if _RUNS.match(cell) and not _NUMBER.fullmatch(cell) else cell


def write_table(file: IO[str], names: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """Writes rows below their names, control characters escaped; returns their number.

    On a terminal the lines are cut to its columns.
    """
    shown = [[printable(cell) for cell in row] for row in (names, *rows)]
    widths = [max(map(cell_width, column)) for column in zip(*shown[:_SAMPLE], strict=True)]
    is_cut = is_terminal(file)
    columns = shutil.get_terminal_size().columns if is_cut else sys.maxsize
    widths = _narrowed(widths, columns)
    shown.insert(1, ["-" * width for width in widths])
    for row in shown:
        if is_cut:
            row = [cut(cell, width) for cell, width in zip(row, widths, strict=True)]
        line = "  ".join(padded(cell, width) for cell, width in zip(row, widths, strict=True))
        write_text(cut(line.rstrip(), columns) + "\n", file)
    return len(rows)


def _narrowed(widths: Sequence[int], columns: int) -> list[int]:
    """Returns the widths with the widest columns narrowed until a row fits."""
    narrowed = [min(width, columns) for width in widths]
    room = columns - _GAP * (len(narrowed) - 1)
    while sum(narrowed) > room and max(narrowed) > _MIN_WIDTH:
        narrowed[narrowed.index(max(narrowed))] -= 1
    return narrowed


def cut(text: str, most: int) -> str:
    """Returns a text cut to a number of columns."""
    if cell_width(text) <= most:
        return text
    while cell_width(text) >= most:
        text = text[: max(0, most - 1)] if len(text) > most else text[:-1]
    return text + "…"
