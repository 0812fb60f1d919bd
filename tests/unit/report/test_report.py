"""`report`: what is listed and drawn, and what becomes of archives, files and bad input."""

from __future__ import annotations

import gzip
import json
import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from tests.simulator import Simulator
from tests.support.program import told
from tests.support.wire import record
from tests.unit.time_machine.test_archives import row_of
from watcher.cli import main
from watcher.records.record import Record
from watcher.report import page as report_page
from watcher.report.page import Report, section
from watcher.report.pictures import Histogram, document
from watcher.time_machine import sorted_lines

NOON = 1_790_000_000 // 86400 * 86400 + 43200


def change(
    number: int, kind: str = "MODIFY", name: str = "a", at: int = 0, **images: Any
) -> Record:
    columns = {"old": "OldImage", "new": "NewImage"}
    part = {
        "Keys": {"pk": {"S": name}},
        "SequenceNumber": str(number),
        "ApproximateCreationDateTime": 1_700_000_000 + at,
        **{columns[which]: image for which, image in images.items()},
    }
    return Record.from_json(json.dumps({"eventName": kind, "dynamodb": part}).encode())


def report_of(*records: Record) -> Report:
    made = Report(title="t", origin="o")
    for each in records:
        made.add(each)
    return made


def texts(*records: Record) -> list[str]:
    """Each change's text, its marks and words one after another."""
    page = document(section(report_of(*records)))
    return [re.sub(r"<[^>]+>", "|", each) for each in page.split("<li><p>")[1:]]


def test_few_changes_are_listed_by_time_whatever_shard_they_come_from() -> None:
    listed = report_of(*(change(number) for number in (7, 2, 9, 1, 8))).listed
    assert [each.record.sequence_number for each in listed.all()] == ["1", "2", "7", "8", "9"]


def test_of_many_changes_the_busiest_minutes_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_page, "MOST_CHANGES", 40)
    monkeypatch.setattr(sorted_lines, "MEMORY_BYTES", 3_000)
    spike = [change(100 + number, at=6_000) for number in range(30)]
    others = [change(number, at=60 * number) for number in range(1, 50)]
    late = [change(900 + number, at=9_000) for number in range(3)]
    page = document(section(report_of(*others, *spike, *late)))
    heads = re.findall("<h3>([^<]*)</h3>", page)
    assert heads[:2] == ["2023-11-14 23:53, 30 changes, of which 20", "2023-11-15 00:43, 3 changes"]
    assert len(heads) == 5 and "The busiest minutes of 82 changes." in page
    assert page.count("<li><p>") == 20 + 3 + 3


def test_differences_have_a_mark_for_the_eye_and_a_word_for_the_ear() -> None:
    old = {"pk": {"S": "a"}, "n": {"N": "1"}, "gone": {"S": "<b>"}, "in": {"M": {"x": {"N": "1"}}}}
    new = {
        "pk": {"S": "a"},
        "n": {"N": "2"},
        "here": {"BOOL": True},
        "in": {"M": {"x": {"N": "3"}}},
    }
    (text,) = texts(change(1, old=old, new=new))
    words = [each.strip() for each in text.split("|") if each.strip()]
    assert words[0] == "MODIFY"
    assert words[3:] == [
        *("-", "removed", "gone", "'&lt;b&gt;'"),
        *("+", "added", "here", "True"),
        *("~", "changed", "in.x", "1 -&gt; 3"),
        *("~", "changed", "n", "1 -&gt; 2"),
    ]


def test_what_is_long_or_can_not_be_compared_is_said() -> None:
    many = {f"a{number:03}": {"N": "1"} for number in range(99)}
    first = change(1, "INSERT", new={"pk": {"S": "a"}, "a": {"S": "x" * 999}, **many})
    long, without = texts(first, change(2, "REMOVE"))
    assert "(nothing to compare: the stream's view type is" in without
    assert "and 60 more" in long and "(999 characters)" in long


def test_an_item_that_is_picked_has_its_life_told(tmp_path: Path) -> None:
    file = tmp_path / "changes.jsonl"
    with file.open("wb") as lines:
        for number in range(30):
            images: Any = {
                name: {"n": {"N": str(number + n)}} for n, name in enumerate(("old", "new"))
            }
            lines.write(bytes(change(number, name=f"item-{number % 3}", **images).raw) + b"\n")
    page = report(file, "--key", "pk=item-1")
    assert "What happened to pk=item-1" in page
    assert page.count('<li><p><b class="kind') == 10
    assert page.index("4 -&gt; 5") < page.index("25 -&gt; 26")
    page = report(file)
    assert page.index("Changes in changes.jsonl per minute") < page.index("What happened<")
    assert page.index("24 -&gt; 25") < page.index("26 -&gt; 27")


def report(source: Path, *words: str, said: str = "Wrote ") -> str:
    """The page that the command writes."""
    target = source.with_name("r.html")
    (line,) = told(0, "report", str(source), *words, "--to", str(target)).err
    assert line == said or said == "Wrote "
    return target.read_text()


@given(st.lists(st.integers(0, 100_000_000), min_size=1))
def test_bars_are_few_and_hold_every_change(seconds: list[int]) -> None:
    histogram = Histogram()
    for each in seconds:
        histogram.add("INSERT", NOON + each)
    histogram.add("REMOVE", None)
    width, bars = histogram.width, histogram.buckets
    assert (max(bars) - min(bars)) // width < 300
    assert width == 60 or (max(seconds) - min(seconds)) // width > 30
    expected = Counter((NOON + each) // width * width for each in seconds)
    assert {start: counts.total() for start, counts in bars.items()} == expected
    assert histogram.untimed == 1


def test_an_archive_is_read_without_what_spark_hides(tmp_path: Path) -> None:
    folder = tmp_path / "lake" / "date=2026-09-21"
    for each in (folder, tmp_path / "none", tmp_path / "none.checkpoint"):
        each.mkdir(parents=True)
    images: dict[str, Any] = {"old": {"n": {"N": "1"}}, "new": {"n": {"N": "2"}}}
    ttl = {"type": "Service", "principal_id": "dynamodb.amazonaws.com"}
    kinds = {"I": ("INSERT", None), "M": ("MODIFY", None), "R": ("REMOVE", ttl)}
    for name, letters in (("part-0 ä", "IIMR"), ("part-1", "IM"), ("_left", "I" * 50)):
        made = [
            row_of(change(turn, kinds[letter][0], "<i>a</i>", **images))
            | {"user_identity": kinds[letter][1], "shard_id": name}
            for turn, letter in enumerate(letters)
        ]
        parquet.write_table(pa.Table.from_pylist(made), folder / f"{name}.parquet")
    text = report(tmp_path / "lake", said=f"Wrote {tmp_path}/r.html: 6 changes")
    assert "pk=&lt;i&gt;a&lt;/i&gt;" in text
    assert "<dt>removed by TTL</dt><dd>1<" in text
    assert "There are no changes." in report(tmp_path / "none")


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "orders.jsonl"
    path.write_bytes(b"".join(bytes(record(number).raw) + b"\n" for number in range(20)))
    return path


def test_lines_of_json_are_read_plain_zipped_and_chosen(lines: Path, tmp_path: Path) -> None:
    zipped = tmp_path / "zipped"
    zipped.write_bytes(gzip.compress(lines.read_bytes()))
    for path in (lines, zipped):
        report(path, said=f"Wrote {tmp_path}/r.html: 20 changes")
    assert "Filtered by --only insert." in report(lines, "--only", "insert")


def test_a_table_is_not_mistaken_for_a_path(
    simulator: Simulator, lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    simulator.bulk(5)
    simulator.advance(2)
    assert "Wrote r.html: 5 changes" in told(0, "report", "orders", "--to", "r.html").said
    assert main(["report", str(lines), "orders", "--to", "r.html"]) == 0
    page = Path("r.html").read_text()
    assert "<dt>changes</dt><dd>25<" in page
    assert "DATA LOSS: nothing is known of" in page
    lines.rename(tmp_path / "orders")
    said = told(0, "report", "orders", "--to", "r.html").said
    assert "orders is read as a path" in said
    assert "Wrote r.html: 20 changes" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nothing/here"], "can't read nothing/here: No such file"),
        (["{folder}"], "is not an archive that python -m watcher archive wrote"),
        (["{lines}", "--to", "{folder}"], "it is a folder"),
        (["{wrong}"], "neither dead letters nor lines of --print-json"),
        (["{half}"], "can't read"),
        (["{csv}"], "is not an archive that python -m watcher archive wrote in Parquet"),
    ],
)
def test_what_can_not_be_is_one_line(
    arguments: list[str], said: str, lines: Path, tmp_path: Path
) -> None:
    folder, wrong, half, csv = (tmp_path / name for name in ("folder", "wrong", "half.gz", "csv"))
    folder.mkdir()
    csv.mkdir()
    (csv / "part-0.csv").touch()
    wrong.write_text("no record\n" * 20)
    half.write_bytes(gzip.compress(lines.read_bytes())[:60])
    places = {"folder": folder, "lines": lines, "wrong": wrong, "half": half, "csv": csv}
    last = told(2, "report", *(each.format(**places) for each in arguments)).err[-1]
    assert last.startswith("error: ")
    assert said in last


def test_the_file_is_replaced_whole_and_links_and_devices_stay(lines: Path, tmp_path: Path) -> None:
    real, link = tmp_path / "real.html", tmp_path / "link.html"
    real.write_text("old")
    link.symlink_to(real)
    assert main(["report", str(lines), "--to", str(link)]) == 0
    assert link.is_symlink()
    assert real.read_text().startswith("<!DOCTYPE html>")
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        *("link.html", "orders.jsonl", "real.html")
    ]
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert main(["report", str(lines), "--to", str(pipe)]) == 0
        assert os.read(reader, 15) == b"<!DOCTYPE html>"
    finally:
        os.close(reader)
    assert told(0, "report", str(lines), "--to", "-").printed.startswith("<!DOCTYPE html>")


def test_a_line_that_can_not_be_read_is_said_on_the_page(lines: Path, tmp_path: Path) -> None:
    with lines.open("a") as file:
        file.write("garbage\n")
    assert main(["report", str(lines), "--to", str(tmp_path / "r.html")]) == 1
    page = (tmp_path / "r.html").read_text()
    assert f'<p class="warning">DATA LOSS: 1 line of {lines} could not be read</p>' in page
