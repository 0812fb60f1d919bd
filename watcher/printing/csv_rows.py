"""Rows of CSV that a spreadsheet shows, and does not run."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from typing import IO, Annotated

from cyclopts import Parameter

# https://owasp.org/www-community/attacks/CSV_Injection
_RUN = ("=", "+", "-", "@", "\t", "\r", "\n")
_NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?", re.ASCII)

RawCells = Annotated[
    bool,
    Parameter(
        negative=(),
        help="csv for programs: no apostrophe before what a spreadsheet would run (= + - @)",
    ),
]
"""The option that `raw` is."""


class CsvRows:
    """Writes rows; with an apostrophe before text that would be a formula, unless `raw`."""

    def __init__(self, file: IO[str], *, raw: bool) -> None:
        self._writer = csv.writer(file, lineterminator="\n")
        self._cell = str if raw else safe

    def write(self, cells: Iterable[object]) -> None:
        """Write one more row."""
        self._writer.writerow(self._cell(each) for each in cells)


def safe(cell: object) -> str:
    """The text of a cell that no spreadsheet runs; a number stays one, also as text."""
    text = str(cell)
    runs = text.startswith(_RUN) and not _NUMBER.fullmatch(text)
    return f"'{text}" if runs else text
