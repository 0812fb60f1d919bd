"""`report`: what is counted, what is drawn, and what becomes of archives, files and bad input."""

from __future__ import annotations

import gzip
import json
import os
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.simulator import Simulator
from tests.support.wire import record
from watcher.cli import main
from watcher.errors import UsageError
from watcher.records.wire import KINDS
from watcher.report.page import Report, page
from watcher.report.summary import Busiest, CountedChange, Histogram, Summary
from watcher.time_machine.archives import Archive, read_records

NOON = 1_790_000_000 // 86400 * 86400 + 43200
CHANGES = st.builds(
    CountedChange,
    st.sampled_from(KINDS),
    st.none() | st.floats(NOON, NOON + 40 * 86400),
    st.tuples(st.tuples(st.just("pk"), st.sampled_from("abcdef"))),
    st.none() | st.lists(st.sampled_from(["x", "y", "z"]), unique=True),
    st.booleans(),
)


@given(st.lists(CHANGES))
def test_the_sums_are_those_of_a_plain_count(drawn: list[CountedChange]) -> None:
    made = Summary()
    for each in drawn:
        made.add(each)
    assert made.changes == len(drawn)
    assert made.kinds == Counter(each.kind for each in drawn)
    assert made.keys.counts == Counter(each.key for each in drawn)
    modified = [each for each in drawn if each.kind == "MODIFY"]
    names = Counter(name for each in modified for name in each.attributes or ())
    assert made.attributes.counts == names
    assert made.without_images == sum(each.attributes is None for each in modified)
    assert made.untimed == sum(each.seconds is None for each in drawn)
    assert made.by_ttl == sum(each.by_ttl for each in drawn)
    times = sorted((each.seconds or 0.0 for each in drawn if each.by_ttl), reverse=True)
    assert [seconds for seconds, _ in made.expired] == times[:10]


@given(st.lists(st.integers(0, 40)), st.integers(1, 12))
def test_bounded_counts_are_low_by_the_error_they_state_at_most(
    names: list[int], bound: int
) -> None:
    busiest: Busiest[str] = Busiest(bound)
    for number in names:
        busiest.add(str(number))
    assert len(busiest.counts) <= bound
    assert busiest.error <= 2 * len(names) / bound
    exact = Counter(map(str, names))
    assert busiest.error == 0 or len(exact) > bound
    for name, count in exact.items():
        assert count - busiest.error <= busiest.counts.get(name, 0) <= count


@given(st.lists(st.integers(0, 10_000_000), min_size=1), st.integers(2, 50))
def test_buckets_are_as_fine_as_their_number_allows(seconds: list[int], most: int) -> None:
    histogram = Histogram()
    for each in seconds:
        histogram.add("INSERT", NOON + each)
    width, buckets = histogram.buckets(most)
    assert width % 60 == 0
    assert all(start % width == 0 for start in buckets)
    assert (max(buckets) - min(buckets)) // width < most + 1
    expected = Counter((NOON + each) // width * width for each in seconds)
    assert {start: counts.total() for start, counts in buckets.items()} == expected


def test_buckets_of_a_very_long_time_are_merged_in_memory() -> None:
    histogram = Histogram(max_buckets=100)
    for minute in range(3000):
        histogram.add("MODIFY", NOON + 60.0 * minute)
    assert len(histogram) <= 101
    width, buckets = histogram.buckets(1000)
    assert width == 3600
    assert sum(counts.total() for counts in buckets.values()) == 3000


def test_ever_so_many_keys_take_little_memory() -> None:
    made = Summary()
    for number in range(100_000):
        made.add(CountedChange("INSERT", NOON + 60.0 * number, (("pk", str(number)),)))
    assert len(made.keys.counts) <= 20_000
    text = page(Report(title="t", origin="o", summary=made))
    assert "over 20,000" in text
    assert "a count may be too low by" in text


# Archives


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A folder as `archive` leaves it when it was killed: one file is in no log."""
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    microseconds = pa.timestamp("us", "UTC")
    identity = pa.struct([("type", pa.string()), ("principal_id", pa.string())])
    ttl = {"type": "Service", "principal_id": "dynamodb.amazonaws.com"}
    folder = tmp_path / "lake" / "date=2026-09-21"
    folder.mkdir(parents=True)
    for name, kinds in (("0", "IIMR"), ("1", "IM"), ("left", "I" * 50)):
        names = [{"I": "INSERT", "M": "MODIFY", "R": "REMOVE"}[kind] for kind in kinds]
        table = {
            "event_name": pa.array(names),
            "approximate_creation_time": pa.array([NOON * 10**6] * len(kinds), microseconds),
            "keys": pa.array(['{"pk":"<i>a</i>"}'] * len(kinds)),
            "new_image": pa.array(['{"pk":"a","n":2}'] * len(kinds)),
            "old_image": pa.array(['{"pk":"a","n":1}'] * len(kinds)),
            "user_identity": pa.array([ttl if kind == "R" else None for kind in kinds], identity),
            "shard_id": pa.array([f"shard-{name}"] * len(kinds)),
            "sequence_number": pa.array([str(turn) for turn in range(len(kinds))]),
        }
        pyarrow.parquet.write_table(pa.table(table), folder / f"part-{name} ä.snappy.parquet")
    log = tmp_path / "lake" / "_spark_metadata"
    log.mkdir()
    for number, name in enumerate("01"):
        path = f"file:/elsewhere/date=2026-09-21/part-{name}%20%C3%A4.snappy.parquet"
        size = (folder / f"part-{name} ä.snappy.parquet").stat().st_size
        entry = {"path": path, "size": size, "action": "add"}
        (log / f"{number}").write_text("v1\n" + json.dumps(entry))
    (log / ".0.crc").write_bytes(b"\x00")
    return tmp_path / "lake"


def test_an_archive_counts_without_what_a_killed_job_has_left(
    lake: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["report", str(lake), "--to", str(tmp_path / "r.html")]) == 0
    assert capsys.readouterr().err.splitlines() == [
        f"Wrote {tmp_path}/r.html: 6 changes",
    ]
    text = (tmp_path / "r.html").read_text()
    assert "pk=&lt;i&gt;a&lt;/i&gt;" in text
    assert "1 of 1 removals" in text


def test_a_compacted_log_begins_with_its_latest_compaction(lake: Path) -> None:
    log = lake / "_spark_metadata"
    (log / "1.compact").write_text((log / "0").read_text())
    (log / "1").unlink()
    assert [path.name for path in Archive(lake).files] == ["part-0 ä.snappy.parquet"]


@pytest.mark.parametrize("harm", ["missing", "empty"])
def test_an_archive_that_lacks_a_written_file_is_refused(lake: Path, harm: str) -> None:
    (path, *_) = sorted(lake.glob("date=*/part-0*"))
    path.unlink() if harm == "missing" else path.write_bytes(b"")
    with pytest.raises(UsageError, match="1 of its 2 files are missing or changed"):
        Archive(lake)


def test_an_archive_that_is_compacted_while_it_is_read_is_not_whole(lake: Path) -> None:
    archive = Archive(lake)
    archive.files[-1].unlink()
    with pytest.raises(UsageError, match="was compacted while it was read; run it again"):
        list(read_records(archive))


def test_without_pyarrow_an_archive_is_refused_with_the_extra_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    (tmp_path / "part-0.parquet").touch()
    with pytest.raises(UsageError, match=r"pip install .*\[spark\]"):
        Archive(tmp_path)


@pytest.mark.parametrize("kind", ["csv", "json", "orc"])
def test_an_archive_in_another_format_is_refused_in_one_line(tmp_path: Path, kind: str) -> None:
    (tmp_path / f"part-0.{kind}").touch()
    with pytest.raises(UsageError, match=f"holds {kind} files: archives are read here in parquet"):
        Archive(tmp_path)


@pytest.mark.parametrize("begun", ["lake.checkpoint", "lake/_spark_metadata"])
def test_an_archive_of_nothing_yet_is_an_empty_page(tmp_path: Path, begun: str) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / begun).mkdir()
    assert main(["report", str(tmp_path / "lake"), "--to", str(tmp_path / "r.html")]) == 0
    assert "There are no changes." in (tmp_path / "r.html").read_text()


# The command


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "orders.jsonl"
    path.write_bytes(b"".join(bytes(record(number).raw) + b"\n" for number in range(20)))
    return path


def test_lines_of_json_are_read_plain_zipped_and_chosen(
    lines: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    zipped, unnamed = tmp_path / "orders.jsonl.gz", tmp_path / "zipped"
    for each in (zipped, unnamed):
        each.write_bytes(gzip.compress(lines.read_bytes()))
    target = tmp_path / "r.html"
    for path in (lines, zipped, unnamed):
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
    for name, value in simulator.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    simulator.bulk(5)
    simulator.advance(2)
    assert main(["report", "orders", "--to", "r.html"]) == 0
    assert "Wrote r.html: 5 changes" in capsys.readouterr().err
    lines.rename(tmp_path / "orders")
    assert main(["report", "orders", "--to", "r.html"]) == 0
    said = capsys.readouterr().err
    assert "orders is read as a path" in said
    assert "Wrote r.html: 20 changes" in said
    assert main(["report", "./nothing"]) == 2


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["nothing/here"], 2, "can't read nothing/here: No such file"),
        (["{folder}"], 2, "is not an archive that python -m watcher archive wrote"),
        (["{lines}", "--to", "{folder}"], 2, "it is a folder"),
        (["{lines}", "--to", "{folder}/no/r.html"], 2, "No such file or directory"),
        (["{lines}", "--only", "nothing"], 2, "--only"),
        (["{wrong}"], 2, "neither dead letters nor lines of --print-json"),
        (["{half}"], 2, "can't read"),
    ],
)
def test_what_can_not_be_is_one_line(
    arguments: list[str],
    status: int,
    said: str,
    lines: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder, wrong, half = tmp_path / "folder", tmp_path / "wrong", tmp_path / "half.gz"
    folder.mkdir()
    wrong.write_text("no record\n" * 20)
    half.write_bytes(gzip.compress(lines.read_bytes())[:60])
    places = {"folder": folder, "lines": lines, "wrong": wrong, "half": half}
    given_ = [each.format(**places) for each in arguments]
    assert main(["report", *given_]) == status
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("error: ")
    assert said in last


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


def test_an_archive_and_the_stream_after_it_are_one_report(
    simulator: Simulator, lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in simulator.environment.items():
        monkeypatch.setenv(name, value)
    simulator.bulk(5)
    simulator.advance(2)
    assert main(["report", str(lines), "orders", "--to", str(tmp_path / "r.html")]) == 0
    page = (tmp_path / "r.html").read_text()
    assert "<dt>changes</dt><dd>25<" in page
    assert "DATA LOSS: nothing is known of" in page


def test_a_line_that_can_not_be_read_is_said_on_the_page(lines: Path, tmp_path: Path) -> None:
    with lines.open("a") as file:
        file.write("garbage\n")
    assert main(["report", str(lines), "--to", str(tmp_path / "r.html")]) == 1
    page = (tmp_path / "r.html").read_text()
    assert f'<p class="warning">DATA LOSS: 1 line of {lines} could not be read</p>' in page


def test_a_default_form_of_other_commands_is_no_file_to_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "all.jsonl").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WATCHER_OUTPUT", "json")
    assert main(["report", "./all.jsonl"]) == 0
    assert sorted(each.name for each in tmp_path.iterdir()) == ["all.jsonl", "report.html"]
