"""An archive holds every change exactly once, whatever has killed the job that writes it."""

import csv
import io
import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

import pyarrow.dataset

from tests.simulator import RemoteSimulator
from tests.spark.conftest import PATIENCE, Run
from watcher.cli import main
from watcher.errors import UsageError
from watcher.service.connection import Connection

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]


def archived(spark: Any, sim: RemoteSimulator, to: Path, **more: Any) -> int:
    from watcher.spark.jobs import archive

    connection = Connection("us-east-1", None, sim.endpoint)
    totals = archive(
        sim.stream_arn, to=str(to), once=True, connection=connection, spark=spark, **more
    )
    return totals.records


def rows(to: Path) -> list[dict[str, Any]]:
    """Read without Spark, so that what a killed attempt has left would show."""
    data = pyarrow.dataset.dataset(to, format="parquet", partitioning="hive")
    columns = ["sequence_number", "keys", "new_image", "date"]
    found: list[dict[str, Any]] = data.to_table(columns=columns).to_pylist()
    return found


def numbers(log: Path) -> list[int]:
    return [int(each.name) for each in log.iterdir() if each.name.isdigit()]


def check(to: Path, sim: RemoteSimulator) -> None:
    """Rows = distinct = expected, and every key's versions are consecutive."""
    written = {each.sequence_number: each for each in sim.records}
    found = [row["sequence_number"] for row in rows(to)]
    assert len(found) == len(set(found))
    assert set(found) == set(written)
    versions: dict[str, list[int]] = defaultdict(list)
    for number in sorted(found, key=int):
        versions[written[number].key].append(written[number].version)
    assert all(each == list(range(1, len(each) + 1)) for each in versions.values())


def grow(sim: RemoteSimulator) -> None:
    sim.bulk(4000, keys=20)
    sim.split()
    sim.bulk(2500, keys=20, remove_every=9)
    sim.rotate()
    sim.bulk(500, keys=20)
    sim.advance(2)


def test_every_change_is_archived_by_date_over_two_runs_and_is_in_a_report(
    spark: Any, sim: RemoteSimulator, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grow(sim)
    assert archived(spark, sim, tmp_path / "lake") == 7000
    sim.split()
    sim.bulk(100, keys=20)
    sim.advance(2)
    assert archived(spark, sim, tmp_path / "lake") == 100

    check(tmp_path / "lake", sim)
    assert list((tmp_path / "lake").glob("date=20*-*-*"))

    page = tmp_path / "report.html"
    assert main(["report", str(tmp_path / "lake"), "-o", str(page)]) == 0
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"Wrote {page}: 7,100 changes, ")


@pytest.mark.parametrize("point", ["reading", "read", "commit"])
def test_a_job_killed_at_any_point_goes_on_exactly(
    spark: Any, sim: RemoteSimulator, tmp_path: Path, point: str
) -> None:
    grow(sim)
    sim.advance(60)  # a backlog
    lake = tmp_path / "lake"
    script = [sys.executable, "-m", "tests.spark.crashing", point]
    killed = subprocess.run(
        [*script, sim.stream_arn, sim.endpoint, str(lake)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert killed.returncode == -9, killed.stderr
    begun, done = (numbers(lake / "_checkpoint" / log) for log in ("offsets", "commits"))
    assert max(begun) > max(done), "it was to be killed in the middle of a batch"

    archived(spark, sim, lake)

    check(lake, sim)


@pytest.mark.parametrize("format_", ["json", "csv", "orc"])
def test_other_formats_hold_the_same(
    command: Run, spark: Any, sim: RemoteSimulator, tmp_path: Path, format_: str
) -> None:
    sim.bulk(30, keys=3)
    sim.put({"pk": {"S": 'a "quoted", name\nof two lines'}})
    sim.remove("k0", ttl=True)
    sim.advance(2)
    to = str(tmp_path / "lake")

    done = command(
        "archive",
        sim.stream_arn,
        *("--endpoint-url", sim.endpoint, "--region", "us-east-1"),
        *("--to", to, "--format", format_, "--once"),
    )

    assert done.status == 0
    assert f"to {to} as {format_}" in done.err
    found = read(spark, to, format_)
    numbers = sorted(str(row["sequence_number"]) for row in found)
    assert numbers == sorted(each.sequence_number for each in sim.records)
    keys = {json.loads(row["keys"])["pk"] for row in found}
    assert keys == {"k0", "k1", "k2", 'a "quoted", name\nof two lines'}
    assert [row["whom"] for row in found if row["whom"]] == ["dynamodb.amazonaws.com"]


def read(spark: Any, to: str, format_: str) -> list[dict[str, Any]]:
    if format_ == "csv":  # as others read it
        texts = [path.read_text() for path in Path(to).rglob("part-*.csv")]
        rows = [row for text in texts for row in csv.DictReader(io.StringIO(text))]
        return [{**row, "whom": row["user_identity"]} for row in rows]
    frame = spark.read.format(format_).load(to)
    columns = ["sequence_number", "keys", "date", "user_identity.principal_id whom"]
    return [row.asDict() for row in frame.selectExpr(*columns).collect()]


def test_a_format_that_is_not_there_is_said_in_a_line(
    command: Run, sim: RemoteSimulator, tmp_path: Path
) -> None:
    done = command(
        "archive",
        sim.stream_arn,
        *("--endpoint-url", sim.endpoint, "--region", "us-east-1"),
        *("--to", str(tmp_path / "lake"), "--format", "delta", "--once"),
    )

    assert done.status != 0
    assert "delta" in done.err.splitlines()[-1]
    assert done.err.count("\n") == 2


def test_another_checkpoint_on_the_same_folder_is_refused(
    spark: Any, sim: RemoteSimulator, tmp_path: Path
) -> None:
    sim.bulk(10)
    sim.advance(2)
    archived(spark, sim, tmp_path / "lake")

    with pytest.raises(UsageError, match="with another checkpoint"):
        archived(spark, sim, tmp_path / "lake", checkpoint=str(tmp_path / "other"))


def parts(to: Path) -> list[Path]:
    return sorted(to.glob("**/part-*"))


def test_a_folder_that_was_moved_is_refused_and_keeps_its_files(
    spark: Any, sim: RemoteSimulator, tmp_path: Path
) -> None:
    sim.bulk(100, keys=5)
    archived(spark, sim, tmp_path / "lake")
    moved = (tmp_path / "lake").rename(tmp_path / "moved")
    before = parts(moved)

    with pytest.raises(UsageError, match=r"is of the parquet files in file:.*/lake"):
        archived(spark, sim, moved)
    (moved / "_checkpoint" / "watcher-archive.json").unlink()  # as an earlier version left it
    with pytest.raises(UsageError, match="is not as it was written: it lacks"):
        archived(spark, sim, moved)

    assert parts(moved) == before != []


def test_what_others_put_into_the_folder_stays(
    spark: Any, sim: RemoteSimulator, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    sim.bulk(100, keys=5)
    archived(spark, sim, lake)
    archived(spark, sim, lake / "nested")
    (day,) = (each for each in lake.glob("date=*") if each.is_dir())
    old, left = day / "part-of-somebody.parquet", day / "part-of-a-killed-attempt.parquet"
    for path, age in ((old, 3600), (left, -1)):
        path.write_bytes(b"")
        now = path.stat().st_mtime
        os.utime(path, (now - age, now - age))
    before = parts(lake)

    archived(spark, sim, lake)

    assert parts(lake) == [path for path in before if path != left]


def test_one_archive_has_one_job_one_folder_and_one_format(
    spark: Any, sim: RemoteSimulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from watcher.spark import folders

    monkeypatch.setattr(folders, "_WAIT_SECONDS", 0.0)
    lake, checkpoint = tmp_path / "lake", tmp_path / "lake" / "_checkpoint"
    sim.bulk(10, keys=5)
    archived(spark, sim, lake)

    with pytest.raises(UsageError, match="is of the parquet files in"):
        archived(spark, sim, lake, format="json")
    with pytest.raises(UsageError, match=r"is of the parquet files in file:.*/lake: give that"):
        archived(spark, sim, tmp_path / "other", checkpoint=str(checkpoint))
    with (
        folders.Folder(spark, str(checkpoint)).locked(),
        pytest.raises(UsageError, match="another job is writing"),
    ):
        archived(spark, sim, lake)
    assert archived(spark, sim, lake) == 0
