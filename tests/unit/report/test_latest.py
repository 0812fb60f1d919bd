"""The latest changes as differences, and an item's life."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.ledger.ledger import Ledger
from tests.unit.time_machine.test_archives import archive
from watcher.cli import main
from watcher.records.record import Record
from watcher.report.page import LatestChanges, section
from watcher.report.pictures import document


def change(number: int, kind: str = "MODIFY", name: str = "a", **images: Any) -> Record:
    columns = {"old": "OldImage", "new": "NewImage"}
    part = {
        "Keys": {"pk": {"S": name}},
        "SequenceNumber": str(number),
        "ApproximateCreationDateTime": 1_700_000_000,
        **{columns[which]: image for which, image in images.items()},
    }
    return Record.from_json(json.dumps({"eventName": kind, "dynamodb": part}).encode())


def texts(latest: LatestChanges, item: str = "") -> list[str]:
    """Each change's text, its marks and words one after another."""
    page = document(section(latest, item))
    return [re.sub(r"<[^>]+>", "|", each) for each in page.split("<li><p>")[1:]]


def test_the_latest_are_kept_whatever_shard_they_come_from() -> None:
    latest = LatestChanges(3)
    for number in (7, 2, 9, 1, 8):
        latest.add(change(number))
    assert [each.sequence_number for each in latest.records()] == ["7", "8", "9"]
    assert "The latest 3 of 5 changes." in document(section(latest, ""))
    assert latest.seen == 5


def test_differences_have_a_mark_for_the_eye_and_a_word_for_the_ear() -> None:
    latest = LatestChanges()
    old = {"pk": {"S": "a"}, "n": {"N": "1"}, "gone": {"S": "<b>"}, "in": {"M": {"x": {"N": "1"}}}}
    new = {
        "pk": {"S": "a"},
        "n": {"N": "2"},
        "here": {"BOOL": True},
        "in": {"M": {"x": {"N": "3"}}},
    }
    latest.add(change(1, old=old, new=new))
    (text,) = texts(latest)
    words = [each.strip() for each in text.split("|") if each.strip()]
    assert words[0] == "MODIFY"
    assert words[3:] == [
        *("-", "removed", "gone", "'&lt;b&gt;'"),
        *("+", "added", "here", "True"),
        *("~", "changed", "in.x", "1 -&gt; 3"),
        *("~", "changed", "n", "1 -&gt; 2"),
    ]


def test_what_is_long_or_can_not_be_compared_is_said() -> None:
    latest = LatestChanges()
    many = {f"a{number:03}": {"N": "1"} for number in range(99)}
    latest.add(change(1, "INSERT", new={"pk": {"S": "a"}, "a": {"S": "x" * 999}, **many}))
    latest.add(change(2, "REMOVE"))
    long, without = texts(latest)
    assert "(nothing to compare: the stream's view type is" in without
    assert "and 60 more" in long and "(999 characters)" in long


def test_what_a_change_did_to_a_long_text_is_seen() -> None:
    latest = LatestChanges()
    old, new = ({"text": {"S": "x" * 2000 + mark + "z" * 2000}} for mark in ("", "inserted"))
    latest.add(change(1, old=old, new=new))
    (text,) = texts(latest)
    assert "inserted" in text
    assert "(4,000 characters) -&gt; " in text and "(4,008 characters)" in text


def test_each_change_has_its_tables_name_if_there_are_several() -> None:
    latest = LatestChanges()
    for table in ("orders", "carts"):
        raw = bytes(change(1).raw)
        stream = f"arn:aws:dynamodb:eu-central-1:1:table/{table}/stream/1"
        latest.add(Record.from_json(raw, "shard", stream))
        assert ("|orders|" in texts(latest)[0]) == (table == "carts")
    assert "|carts|" in texts(latest)[1]


def report(tmp_path: Path, *words: str) -> str:
    target = tmp_path / "r.html"
    assert main(["report", *words, "-o", str(target)]) == 0
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
    assert page.index("What happened<") < page.index("Changes in changes.jsonl per minute")
    assert page.index("24 -&gt; 25") < page.index("26 -&gt; 27")


def test_very_many_changes_end_with_the_latest(tmp_path: Path) -> None:
    file = tmp_path / "changes.jsonl"
    file.write_bytes(b"".join(bytes(change(number).raw) + b"\n" for number in range(201)))
    page = report(tmp_path, str(file))
    assert "The latest 20 of 201 changes." in page
    assert page.index(" per minute<") < page.index("Latest changes<")


def test_an_item_of_an_archive_or_a_file(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    with Ledger(3) as ledger:
        ledger.write(200)
        ledger.settle()
        lake = archive(ledger, tmp_path / "lake")
    page = report(tmp_path, str(lake), "--key", "pk=item-0", "--only", "modify")
    assert "What happened to pk=item-0" in page
    assert "Filtered by --only modify --key pk=item-0" in page
    counts = re.search(r"<dt>MODIFY</dt><dd>(\d+)<", page)
    assert counts and page.count('<li><p><b class="kind modify') == int(counts[1]) > 5
    assert report(tmp_path, str(lake)).count('<li><p><b class="kind') == 200
