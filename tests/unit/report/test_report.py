"""`report`: what is counted, what is drawn, and what becomes of archives, files and bad input."""

from __future__ import annotations

import functools
import gzip
import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.simulator import Simulator
from tests.support.program import Program
from tests.support.wire import record
from watcher.aws.model import Listing, Shard
from watcher.cli import main
from watcher.errors import UsageError
from watcher.observability.watch_stats import Totals
from watcher.records.wire import KINDS
from watcher.report import summary
from watcher.report.page import LatestChanges, Report, page
from watcher.report.pictures import Bar, bars, lineage_rows
from watcher.report.summary import Busiest, CountedChange, Histogram, ShardCount, Summary
from watcher.time_machine.archives import Archive
from watcher.watching import watch

NOON = 1_790_000_000 // 86400 * 86400 + 43200
CHANGES = st.builds(
    CountedChange,
    st.sampled_from(KINDS),
    st.none() | st.floats(NOON, NOON + 40 * 86400),
    st.tuples(st.tuples(st.just("pk"), st.sampled_from("abcdef"))),
    st.none() | st.lists(st.sampled_from(["x", "y", "z"]), unique=True),
    st.booleans(),
    st.sampled_from(["", "s1", "s2"]),
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
    shards = Counter(each.shard_id for each in drawn if each.shard_id)
    assert {name: count.changes for name, count in made.shards.items()} == shards


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
    text = page(Report(title="t", origin="o", summary=made, latest=LatestChanges()))
    assert "over 20,000" in text
    assert "a count may be too low by" in text


# Shards


def listing(*shards: Shard) -> Listing:
    now = datetime.fromtimestamp(NOON + 3600, UTC)
    return Listing("arn", "orders", "ENABLED", "KEYS_ONLY", list(shards), 1, now)


def shard_id(seconds: float, name: str) -> str:
    return f"shardId-{int(seconds * 1000):020}-{name}"


def test_a_shard_ends_where_its_child_begins_and_an_open_one_now() -> None:
    parent, child = shard_id(NOON, "a"), shard_id(NOON + 60, "b")
    listed = listing(Shard(child, parent), Shard(parent))  # it still looks open
    count = ShardCount()
    count.add(NOON + 30.0)
    first, second = bars({parent: count}, listed)
    assert first == Bar(parent, None, NOON, NOON + 60, False, 1)
    assert second == Bar(child, parent, NOON + 60, NOON + 3600, True, 0)


def test_a_shard_that_an_emulator_numbers_as_it_likes_begins_with_its_first_change() -> None:
    count = ShardCount()
    count.add(NOON + 30.0)
    (bar,) = bars({"shardId-00000001541626099285-f35f62ef": count}, None)
    assert (bar.begin, bar.end, bar.is_open) == (NOON + 30, NOON + 30, None)


def test_children_go_on_in_their_parents_row_or_stand_below_it() -> None:
    tree = {"b": "a", "c": "a", "d": "b", "e": "b", "f": "c", "y": "x"}
    drawn = [Bar(name, tree.get(name), NOON, NOON, None, 0) for name in "axbcdefy"]
    names = ["".join(bar.id for bar in row) for row in lineage_rows(drawn)]
    assert names == ["abd", "e", "cf", "xy"]


def test_shards_without_known_parents_share_rows_one_after_the_other() -> None:
    spans = {"a": (0, 5), "b": (1, 2), "c": (3, 9), "d": (6, 7)}
    drawn = [Bar(name, None, begin, end, None, 0) for name, (begin, end) in spans.items()]
    assert ["".join(bar.id for bar in row) for row in lineage_rows(drawn)] == ["ad", "bc"]


def test_a_lineage_of_thousands_of_generations_is_no_recursion() -> None:
    drawn = [Bar(str(n), str(n - 1), float(n), n + 1.0, None, 0) for n in range(5000)]
    assert len(lineage_rows(drawn)) == 1


# Rows and records


def test_a_record_and_its_row_in_an_archive_are_the_same_change() -> None:
    old = {"pk": {"S": "a"}, "n": {"N": "1"}, "m": {"M": {"x": {"S": "1"}, "y": {"S": "2"}}}}
    new = {"pk": {"S": "a"}, "n": {"N": "2"}, "m": {"M": {"y": {"S": "2"}, "x": {"S": "1"}}}}
    wire = json.loads(bytes(record(1).raw))
    wire["dynamodb"] |= {"OldImage": old, "NewImage": new, "Keys": {"pk": {"S": "a"}}}
    at = datetime.fromtimestamp(wire["dynamodb"]["ApproximateCreationDateTime"], UTC)
    row = {
        "event_name": "MODIFY",
        "approximate_creation_time": at,
        "keys": '{"pk":"a"}',
        "old_image": '{"pk":"a","n":1,"m":{"x":"1","y":"2"}}',
        "new_image": '{"pk":"a","n":2,"m":{"y":"2","x":"1"}}',
        "shard_id": "s",
    }
    made = summary.change_of_record(type(record(1)).from_json(json.dumps(wire).encode(), "s"))
    assert made == CountedChange("MODIFY", at.timestamp(), (("pk", "a"),), ["n"], False, "s")
    assert summary.change_of_row(row) == made


@pytest.mark.parametrize(
    "row",
    [
        {},
        {"event_name": "TRUNCATE", "keys": "{}"},
        {"event_name": "INSERT", "keys": "[]"},
        {"event_name": "INSERT", "keys": 5},
        {"event_name": "INSERT", "keys": "{}", "approximate_creation_time": "yesterday"},
        {"event_name": "MODIFY", "keys": "{}", "new_image": "{", "old_image": "{}"},
    ],
)
def test_a_row_that_is_no_change_is_said_to_be_none(row: dict[str, Any]) -> None:
    with pytest.raises(summary.UnreadableChangeError):
        summary.change_of_row(row)


def test_a_number_in_a_key_keeps_all_that_count_of_its_digits() -> None:
    keys = '{"pk":12345678901234567890.10,"sk":"\\u00e9"}'
    made = summary.change_of_row({"event_name": "INSERT", "keys": keys})
    assert made.key == (("pk", "12345678901234567890.1"), ("sk", "é"))


# Archives


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A folder as `archive` leaves it when it was killed: one file is in no log."""
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    identity = pa.struct([("type", pa.string()), ("principal_id", pa.string())])
    folder = tmp_path / "lake" / "date=2026-09-21"
    folder.mkdir(parents=True)
    for name, kinds in (("0", "IIMR"), ("1", "IM"), ("left", "I" * 50)):
        names = [{"I": "INSERT", "M": "MODIFY", "R": "REMOVE"}[kind] for kind in kinds]
        table = {
            "event_name": pa.array(names),
            "approximate_creation_time": pa.array([NOON * 10**6] * len(kinds), pa.timestamp("us")),
            "keys": pa.array(['{"pk":"<i>a</i>"}'] * len(kinds)),
            "new_image": pa.array(['{"pk":"a","n":2}'] * len(kinds)),
            "old_image": pa.array(['{"pk":"a","n":1}'] * len(kinds)),
            "user_identity": pa.array(
                [{"type": "Service", "principal_id": "dynamodb.amazonaws.com"}] * len(kinds),
                identity,
            ),
            "shard_id": pa.array([f"shard-{name}"] * len(kinds)),
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
    assert main(["report", str(lake), "-o", str(tmp_path / "r.html")]) == 0
    assert capsys.readouterr().err.splitlines() == [
        f"Reading {lake}: 2 parquet files",
        f"Wrote {tmp_path}/r.html: 6 changes, 2 shards",
    ]
    text = (tmp_path / "r.html").read_text()
    assert "does not hold which shard is whose parent" in text
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
        list(archive.rows())


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
    assert main(["report", str(tmp_path / "lake"), "-o", str(tmp_path / "r.html")]) == 0
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
        assert main(["report", str(path), "-o", str(target)]) == 0
        assert capsys.readouterr().err == f"Wrote {target}: 20 changes\n"
    assert main(["report", str(lines), "-o", str(target), "--only", "insert"]) == 0
    assert "Filtered by --only insert; 20 other changes are left out." in target.read_text()


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
    assert main(["report", "orders", "-o", "r.html"]) == 0
    assert "Wrote r.html: 5 changes, 1 shard" in capsys.readouterr().err
    lines.rename(tmp_path / "orders")
    assert main(["report", "orders", "-o", "r.html"]) == 0
    said = capsys.readouterr().err
    assert "orders is read as a path" in said
    assert "Wrote r.html: 20 changes" in said
    assert main(["report", "./nothing"]) == 2


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["nothing/here"], 2, "can't read nothing/here: No such file"),
        (["{folder}"], 2, "is not an archive that python -m watcher archive wrote"),
        (["{lines}", "-o", "{folder}"], 2, "it is a folder"),
        (["{lines}", "-o", "{folder}/no/r.html"], 2, "there is no such folder"),
        (["{lines}", "--from", "2h"], 2, "--from: for streams only; a file is read whole"),
        (["{folder}", "--from", "2h"], 2, "--from: for streams only; a folder is read whole"),
        (["{lines}", "--only", "nothing"], 2, "--only"),
        (["{wrong}"], 2, "neither dead letters nor lines of --print-json"),
        (["{half}"], 2, "can't read"),
        (["{line}"], 2, "no line is a change as --print-json prints it"),
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
    line = tmp_path / "line"
    line.write_text("garbage\n")
    folder.mkdir()
    wrong.write_text("no record\n" * 20)
    half.write_bytes(gzip.compress(lines.read_bytes())[:60])
    places = {"folder": folder, "lines": lines, "wrong": wrong, "half": half, "line": line}
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
    assert main(["report", str(lines), "-o", str(link)]) == 0
    assert link.is_symlink()
    assert real.read_text().startswith("<!DOCTYPE html>")
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        *("link.html", "orders.jsonl", "real.html")
    ]
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert main(["report", str(lines), "-o", str(pipe)]) == 0
        assert os.read(reader, 15) == b"<!DOCTYPE html>"
    finally:
        os.close(reader)
    capsys.readouterr()
    assert main(["report", str(lines), "-o", "-"]) == 0
    assert capsys.readouterr().out.startswith("<!DOCTYPE html>")


@pytest.fixture
def slow() -> Iterator[Simulator]:
    with Simulator(table="orders") as sim:
        sim.bulk(5000, size=1000)
        sim.advance(2)
        sim.set_faults(latency=0.3)
        yield sim


def test_equal_keys_of_two_tables_are_two_items(
    simulator: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in simulator.environment.items():
        monkeypatch.setenv(name, value)
    simulator.put({"pk": {"S": "a"}})
    carts = simulator.add_foreign_table("carts", "210987654321", records=1)
    simulator.advance(2)
    assert main(["report", "orders", carts, "-o", str(tmp_path / "r.html")]) == 0
    page = (tmp_path / "r.html").read_text()
    assert ">orders pk=a<" in page and ">carts pk=a<" in page


def test_a_report_that_was_ended_early_says_so(slow: Simulator, tmp_path: Path) -> None:
    target = tmp_path / "r.html"
    with Program("report", "orders", "-o", str(target), env=slow.environment) as program:
        program.wait_for_status("Starting watcher")
        assert program.end() == 128 + signal.SIGTERM
    assert "The reading was ended before all was read" in target.read_text()


def test_what_was_lost_is_on_the_page(simulator: Simulator, tmp_path: Path) -> None:
    made = Summary()
    made.add(CountedChange("INSERT", float(NOON), (("pk", "a"),)))
    warnings = ["DATA LOSS: at 1 place"]
    report = Report(title="t", origin="o", summary=made, latest=LatestChanges(), warnings=warnings)
    assert '<p class="warning">DATA LOSS: at 1 place</p>' in page(report)


def test_a_report_that_was_ended_before_it_had_begun_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a signal ends it while the first listing drips."""

    @functools.wraps(watch)
    def ended(*_: object, **__: object) -> Totals:
        return Totals(stopped=True)

    monkeypatch.setattr("watcher.cli.report.watch", ended)
    assert main(["report", "orders", "-o", str(tmp_path / "r.html")]) == 1
    assert "nothing to report" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
