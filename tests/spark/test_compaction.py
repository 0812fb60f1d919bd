"""Few big files out of many small ones, while others read them, and while it is killed."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

import duckdb
import polars
import pyarrow as pa
import pyarrow.parquet as parquet

from watcher.cli import main
from watcher.errors import UsageError
from watcher.files import swap
from watcher.spark import compaction
from watcher.spark.compaction import compact_day
from watcher.spark.timing import LIMITS, SourceLimits, Timing

TIME = datetime(2026, 11, 21, 12, tzinfo=UTC)
ROWS = 200


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Two days of small files, and what is beside them."""
    home = tmp_path / "lake.checkpoint"
    home.mkdir()
    (home / ".watcher-lock").touch()
    for day in (20, 21):
        fill(tmp_path / "lake" / f"date=2026-11-{day}", range(10), prefix=f"{day}")
    return tmp_path / "lake"


def fill(day: Path, numbers: Iterator[int] | range, prefix: str = "", **more: Any) -> None:
    day.mkdir(parents=True, exist_ok=True)
    for number in numbers:
        names = [f"{prefix}{number:03}{row:05}" for row in range(ROWS)]
        times = pa.array([TIME] * ROWS, pa.timestamp("us", tz="UTC"))
        table = pa.table({"sequence_number": names, "approximate_creation_time": times, **more})
        parquet.write_table(table, day / f"batch-{number:09}-00000.snappy.parquet")


def read(lake: Path) -> Counter[str]:
    """The numbers of all rows, each as often as it is there."""
    found = duckdb.execute(f"SELECT sequence_number FROM '{lake}/**/*.parquet'").fetchall()
    return Counter(number for (number,) in found)


def files(lake: Path) -> list[int]:
    return [len(list(day.iterdir())) for day in sorted(lake.iterdir())]


def compact(lake: str, limits: SourceLimits = LIMITS, listing_seconds: float = 0.0) -> int:
    return compaction.compact(lake, limits, Timing(listing_seconds=listing_seconds))


def test_each_day_has_one_file_of_the_same_rows(lake: Path) -> None:
    before = read(lake)
    assert compact(str(lake)) == 18
    assert files(lake) == [1, 1]
    assert read(lake) == before and set(before.values()) == {1}
    assert polars.read_parquet(lake)["approximate_creation_time"].unique().to_list() == [TIME]
    assert list(lake.parent.glob("lake.checkpoint/compacted/*")) == [], "nothing is left"
    assert compact(str(lake)) == 0, "there is nothing to do"


def test_the_command_takes_no_spark(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pyspark")
    assert main(["archive", "orders", "--to", str(lake), "--compact"]) == 0
    *days, last = capsys.readouterr().err.splitlines()
    assert last == "Done: 18 files fewer"
    assert days[0] == f"Compacted {lake}/date=2026-11-20: 10 files are 1 now"


def test_what_is_big_stays_as_it_is(lake: Path) -> None:
    compact(str(lake))
    (big, _) = sorted(lake.rglob("*.parquet"))
    limits = SourceLimits(small_file_bytes=big.stat().st_size)
    fill(big.parent, range(10, 13), prefix="20")
    inode, before = big.stat().st_ino, read(lake)
    assert compact(str(lake), limits) == 2
    assert big.stat().st_ino == inode and files(lake) == [2, 1] and read(lake) == before


def test_a_big_day_becomes_several_files(lake: Path) -> None:
    before = read(lake)
    compact(str(lake), SourceLimits(row_group_bytes=1000, file_bytes=5000))
    assert 1 < files(lake)[0] < 10 and read(lake) == before


def test_columns_that_came_later_and_times_of_an_earlier_version(lake: Path) -> None:
    day = lake / "date=2026-11-21"
    typed = pa.array([{"a": 1}] * ROWS, pa.struct([("a", pa.int32())]))
    wider = pa.array([{"a": 1, "b": "x"}] * ROWS, pa.struct([("a", pa.int32()), ("b", "string")]))
    fill(day, range(20, 21), image=typed)
    fill(day, range(21, 22), image=wider)
    table = pa.table({"sequence_number": ["old"], "approximate_creation_time": [TIME]})
    parquet.write_table(table, day / "part-0.parquet", use_deprecated_int96_timestamps=True)
    before = read(lake)
    compact(str(lake))
    assert read(lake) == before
    rows = polars.read_parquet(day)
    assert rows["approximate_creation_time"].unique().to_list() == [TIME]
    images = rows.filter(polars.col("sequence_number").str.starts_with("02"))["image"]
    assert Counter(map(str, images)) == {
        "{'a': 1, 'b': None}": ROWS,
        "{'a': 1, 'b': 'x'}": ROWS,
    }


def test_a_day_with_a_strange_file_is_left_alone(
    lake: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (lake / "date=2026-11-20" / "notes.txt").touch()
    compact(str(lake))
    assert files(lake) == [11, 1]
    assert "notes.txt is not a file of an archive" in caplog.text


def test_who_lists_it_at_any_time_sees_every_row_once(lake: Path) -> None:
    """And who has listed it before gets an error, never less than all."""
    expected = read(lake)
    day = lake / "date=2026-11-21"
    compared: Counter[str] = Counter()

    def loop() -> None:
        while not done:
            for name, look in (
                ("duckdb", lambda: read(lake)),
                ("polars", lambda: Counter(polars.read_parquet(lake)["sequence_number"])),
            ):
                try:
                    assert look() == expected
                    compared[name] += 1
                except (duckdb.IOException, FileNotFoundError):
                    compared[f"{name} again"] += 1

    done = False
    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(loop)
        until = time.monotonic() + 3
        while time.monotonic() < until and not reader.done():
            compact(str(lake), listing_seconds=0.5)
            # Small ones again, at once too.
            (big,) = day.iterdir()
            table = parquet.read_table(big)
            # It stays for a while, as what a compaction has replaced does: who is listing it now
            # would else find a part of it.
            aside = lake.parent / "lake.checkpoint" / f"small-{time.time_ns()}"
            aside.mkdir()
            for number in range(10):
                part = table.slice(number * ROWS, ROWS)
                parquet.write_table(part, aside / f"batch-{time.time_ns()}-{number}.parquet")
            swap(aside, day)
        done = True
        reader.result()
    assert compared["duckdb"] > 5 and compared["polars"] > 5, compared


KILLED = """
import os, signal, sys
from watcher.spark import compaction
from watcher.files import swap

def stop(*paths):
    if sys.argv[2] == "after":
        swap(*paths)
    os.kill(os.getpid(), signal.SIGKILL)

compaction.swap = stop
compaction.compact(sys.argv[1])
"""


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_it_has_changed_nothing_or_a_day(lake: Path, when: str) -> None:
    before = read(lake)
    done = subprocess.run([sys.executable, "-c", KILLED, str(lake), when], cwd=os.getcwd())
    assert done.returncode == -signal.SIGKILL
    assert read(lake) == before
    assert files(lake) == ([10, 10] if when == "before" else [1, 10])
    compact(str(lake))
    assert read(lake) == before and files(lake) == [1, 1]
    assert list(lake.parent.glob("lake.checkpoint/compacted/*")) == []


def test_it_can_be_stopped(lake: Path) -> None:
    day = lake / "date=2026-11-21"
    assert compact_day(day, lake.with_name("lake.checkpoint"), lambda: False) == 0
    assert len(list(day.iterdir())) == 10


def test_not_where_a_job_is_writing_nor_what_is_no_archive(lake: Path, tmp_path: Path) -> None:
    script = "import fcntl, sys; f = open(sys.argv[1], 'a'); fcntl.lockf(f, fcntl.LOCK_EX)"
    script += "; print('held', flush=True); sys.stdin.read()"
    lock = tmp_path / "lake.checkpoint" / ".watcher-lock"
    held = [sys.executable, "-c", script, str(lock)]
    with subprocess.Popen(held, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as job:
        assert job.stdout is not None and job.stdout.readline() == b"held\n"
        with pytest.raises(UsageError, match="a job is writing with"):
            compact(str(lake))
        job.communicate()
    with pytest.raises(UsageError, match="is not an archive"):
        compact(str(tmp_path / "lake.checkpoint"))
    with pytest.raises(UsageError, match="is not a folder on a disk"):
        compact("s3a://bucket/lake")


def test_a_file_system_that_cannot_says_so(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*paths: Path) -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(compaction, "swap", refuse)
    with pytest.raises(UsageError, match="can't let two folders change places"):
        compact(str(lake))
    assert files(lake) == [10, 10]
    assert list(lake.parent.glob("lake.checkpoint/compacted/*")) == []
