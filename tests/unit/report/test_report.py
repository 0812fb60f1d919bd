"""`report`: what is drawn, and what becomes of archives, files and bad input."""

from __future__ import annotations

import gzip
import json
import os
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.simulator import Simulator
from tests.support.wire import record
from watcher.cli import main
from watcher.report.pictures import Histogram

NOON = 1_790_000_000 // 86400 * 86400 + 43200


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


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A folder as `archive` leaves it, with a file that Spark hides."""
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    ttl = {"type": "Service", "principal_id": "dynamodb.amazonaws.com"}
    folder = tmp_path / "lake" / "date=2026-09-21"
    folder.mkdir(parents=True)
    for name, kinds in (("part-0 ä", "IIMR"), ("part-1", "IM"), ("_left", "I" * 50)):
        rows = [
            {
                "event_name": {"I": "INSERT", "M": "MODIFY", "R": "REMOVE"}[kind],
                "approximate_creation_time": datetime.fromtimestamp(NOON, UTC),
                "keys": '{"pk":"<i>a</i>"}',
                "new_image": '{"pk":"a","n":2}',
                "old_image": '{"pk":"a","n":1}',
                "user_identity": ttl if kind == "R" else {"type": None, "principal_id": None},
                "shard_id": f"shard-{name}",
                "sequence_number": str(turn),
            }
            for turn, kind in enumerate(kinds)
        ]
        pyarrow.parquet.write_table(pa.Table.from_pylist(rows), folder / f"{name}.parquet")
    return tmp_path / "lake"


def test_an_archive_is_read_without_what_spark_hides(
    lake: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["report", str(lake), "--to", str(tmp_path / "r.html")]) == 0
    assert capsys.readouterr().err == f"Wrote {tmp_path}/r.html: 6 changes\n"
    text = (tmp_path / "r.html").read_text()
    assert "pk=&lt;i&gt;a&lt;/i&gt;" in text
    assert "<dt>removed by TTL</dt><dd>1<" in text
    assert "The share of 2 modifications that changed the attribute." in text
    assert text.count('<code>n</code></th><td class="count">2<') == 1


def test_an_archive_of_nothing_yet_is_an_empty_page(tmp_path: Path) -> None:
    for name in ("lake", "lake.checkpoint"):
        (tmp_path / name).mkdir()
    assert main(["report", str(tmp_path / "lake"), "--to", str(tmp_path / "r.html")]) == 0
    assert "There are no changes." in (tmp_path / "r.html").read_text()


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "orders.jsonl"
    path.write_bytes(b"".join(bytes(record(number).raw) + b"\n" for number in range(20)))
    return path


def test_lines_of_json_are_read_plain_zipped_and_chosen(
    lines: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    zipped = tmp_path / "zipped"
    zipped.write_bytes(gzip.compress(lines.read_bytes()))
    target = tmp_path / "r.html"
    for path in (lines, zipped):
        assert main(["report", str(path), "--to", str(target)]) == 0
        assert capsys.readouterr().err == f"Wrote {target}: 20 changes\n"
    assert main(["report", str(lines), "--to", str(target), "--only", "insert"]) == 0
    assert "Filtered by --only insert." in target.read_text()


def test_a_table_is_not_mistaken_for_a_path(
    simulator: Simulator,
    lines: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    simulator.set_environment(monkeypatch.setenv)
    monkeypatch.chdir(tmp_path)
    simulator.bulk(5)
    simulator.advance(2)
    assert main(["report", "orders", "--to", "r.html"]) == 0
    assert "Wrote r.html: 5 changes" in capsys.readouterr().err
    assert main(["report", str(lines), "orders", "--to", "r.html"]) == 0
    page = Path("r.html").read_text()
    assert "<dt>changes</dt><dd>25<" in page
    assert "DATA LOSS: nothing is known of" in page
    capsys.readouterr()
    lines.rename(tmp_path / "orders")
    assert main(["report", "orders", "--to", "r.html"]) == 0
    said = capsys.readouterr().err
    assert "orders is read as a path" in said
    assert "Wrote r.html: 20 changes" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nothing/here"], "can't read nothing/here: No such file"),
        (["{folder}"], "is not an archive that python -m watcher archive wrote"),
        (["{lines}", "--to", "{folder}"], "it is a folder"),
        (["{lines}", "--to", "{folder}/no/r.html"], "No such file or directory"),
        (["{lines}", "--only", "nothing"], "--only"),
        (["{wrong}"], "neither dead letters nor lines of --print-json"),
        (["{half}"], "can't read"),
        (["{csv}"], "is not an archive that python -m watcher archive wrote in Parquet"),
    ],
)
def test_what_can_not_be_is_one_line(
    arguments: list[str],
    said: str,
    lines: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder, wrong, half, csv = (tmp_path / name for name in ("folder", "wrong", "half.gz", "csv"))
    folder.mkdir()
    csv.mkdir()
    (csv / "part-0.csv").touch()
    wrong.write_text("no record\n" * 20)
    half.write_bytes(gzip.compress(lines.read_bytes())[:60])
    places = {"folder": folder, "lines": lines, "wrong": wrong, "half": half, "csv": csv}
    assert main(["report", *(each.format(**places) for each in arguments)]) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("error: ")
    assert said in last


def test_without_pyarrow_an_archive_is_refused_with_the_extra_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    (tmp_path / "part-0.parquet").touch()
    assert main(["report", str(tmp_path)]) == 2
    assert "[spark]" in capsys.readouterr().err


def test_the_file_is_replaced_whole_and_links_and_devices_stay(
    lines: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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
    capsys.readouterr()
    assert main(["report", str(lines), "--to", "-"]) == 0
    assert capsys.readouterr().out.startswith("<!DOCTYPE html>")


def test_equal_keys_of_two_tables_are_two_items(tmp_path: Path) -> None:
    letters = tmp_path / "letters.jsonl"
    change = {"Keys": {"PK": {"S": "a"}}, "ApproximateCreationDateTime": NOON}
    with letters.open("w") as file:
        for number, name in enumerate(("orders", "carts")):
            part = {**change, "SequenceNumber": str(number)}
            arn = f"arn:aws:dynamodb:eu-west-1:123456789012:table/{name}/stream/1"
            record = {"eventName": "REMOVE", "dynamodb": part}
            file.write(json.dumps({"record": record, "shard_id": "s", "stream": arn}) + "\n")
    assert main(["report", str(letters), "--to", str(tmp_path / "r.html")]) == 0
    page = (tmp_path / "r.html").read_text()
    assert ">orders PK=a<" in page and ">carts PK=a<" in page
    assert "<dt>items changed</dt><dd>2<" in page


def test_a_line_that_can_not_be_read_is_said_on_the_page(lines: Path, tmp_path: Path) -> None:
    with lines.open("a") as file:
        file.write("garbage\n")
    assert main(["report", str(lines), "--to", str(tmp_path / "r.html")]) == 1
    page = (tmp_path / "r.html").read_text()
    assert f'<p class="warning">DATA LOSS: 1 line of {lines} could not be read</p>' in page
