"""Rows as CSV that is safe in a spreadsheet, and as a table."""

import csv
import io

import pytest

from watcher.formatting.rows import write_csv, write_table


def written(*cells: str) -> list[str]:
    file = io.StringIO()
    assert write_csv(file, ["a"] * len(cells), [cells]) == 1
    return list(csv.reader(io.StringIO(file.getvalue(), newline="")))[1]


@pytest.mark.parametrize("cell", ["=1+1", "+cmd", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "\uff1d1"])
def test_a_cell_that_a_spreadsheet_would_run_is_text(cell: str) -> None:
    assert written(cell) == [f"'{cell}"]


@pytest.mark.parametrize("cell", ["-1", "+1.5", "-.5e-10", "a=1", "", "1-2", "x@y"])
def test_numbers_and_other_texts_stay_as_they_are(cell: str) -> None:
    assert written(cell) == [cell]


def test_a_table_s_columns_are_as_wide_as_what_is_in_them() -> None:
    file = io.StringIO()
    assert write_table(file, ["name", "n"], [["a longer one", "1"], ["\x1b[31m", "20"]]) == 2
    assert file.getvalue().splitlines() == [
        "name          n",
        "------------  --",
        "a longer one  1",
        "\\x1b[31m      20",
    ]


class ATerminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_a_table_is_cut_to_its_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "24")
    file = ATerminal()
    write_table(file, ["name", "n", "note"], [["a rather long one", "1", "b" * 30]])
    lines = file.getvalue().splitlines()
    assert lines[0].split() == ["name", "n", "note"]
    assert lines[2] == "a rather…  1  bbbbbbbbb…"
