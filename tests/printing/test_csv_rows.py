"""Cells of CSV: shown by a spreadsheet, never run."""

from __future__ import annotations

import csv
import io
from decimal import Decimal

import hypothesis.strategies as st
import pytest
from hypothesis import given

from watcher.printing.csv_rows import CsvRows, safe


@pytest.mark.parametrize(
    "text", ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(1)", "\t=1", "\r=1", "\n=1", "-", "-1-1"]
)
def test_what_a_spreadsheet_would_run_begins_with_an_apostrophe(text: str) -> None:
    assert safe(text) == "'" + text


@pytest.mark.parametrize("value", [-5, Decimal("-1E+40"), -0.5, "-5", "+5", "-1.5e-7", "", "a=1"])
def test_numbers_and_other_text_stay_as_they_are(value: object) -> None:
    assert safe(value) == str(value)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs", "Cc"]))))
def test_programs_get_the_text_itself(cells: list[str]) -> None:
    file = io.StringIO()
    CsvRows(file, raw=True).write(["first", *cells])
    assert list(csv.reader([file.getvalue()])) == [["first", *cells]]
