"""The latest changes as differences, and an item's life."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from watcher.cli import main
from watcher.records.record import Record
from watcher.report import page as report_page
from watcher.report.page import Report, section
from watcher.report.pictures import document
from watcher.time_machine import sorted_lines


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
    assert heads[:2] == [
        "2023-11-14 23:53, 30 changes, of which 20",
        "2023-11-15 00:43, 3 changes",
    ]
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


def report(tmp_path: Path, *words: str) -> str:
    target = tmp_path / "r.html"
    assert main(["report", *words, "--to", str(target)]) == 0
    return target.read_text()


def test_an_item_that_is_picked_has_its_life_told(tmp_path: Path) -> None:
    file = tmp_path / "changes.jsonl"
    with file.open("wb") as lines:
        for number in range(30):
            images: Any = {
                name: {"n": {"N": str(number + n)}} for n, name in enumerate(("old", "new"))
            }
            lines.write(bytes(change(number, name=f"item-{number % 3}", **images).raw) + b"\n")
    page = report(tmp_path, str(file), "--key", "pk=item-1")
    assert "What happened to pk=item-1" in page
    assert page.count('<li><p><b class="kind') == 10
    assert page.index("4 -&gt; 5") < page.index("25 -&gt; 26")
    page = report(tmp_path, str(file))
    assert page.index("Changes in changes.jsonl per minute") < page.index("What happened<")
    assert page.index("What happened<") < page.index("Busiest keys<")
    assert page.index("24 -&gt; 25") < page.index("26 -&gt; 27")
