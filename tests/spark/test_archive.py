"""An archive holds every change exactly once, whatever has killed the job that writes it."""

import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

import pyarrow.dataset

from tests.simulator import RemoteSimulator
from watcher.cli import main
from watcher.errors import UsageError
from watcher.streams import Connection

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


@pytest.mark.timeout(180)
@pytest.mark.parametrize("point", ["reading", "read", "commit"])
def test_a_job_killed_at_any_point_goes_on_exactly(
    spark: Any, sim: RemoteSimulator, tmp_path: Path, point: str
) -> None:
    grow(sim)
    lake = tmp_path / "lake"
    script = [sys.executable, "-m", "tests.spark.crashing", point]
    killed = subprocess.run(
        [*script, sim.stream_arn, sim.endpoint, str(lake)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert killed.returncode == -9, killed.stderr
    begun, done = (numbers(lake / "_checkpoint" / log) for log in ("offsets", "commits"))
    assert max(begun) > max(done), "it was to be killed in the middle of a batch"

    archived(spark, sim, lake)

    check(lake, sim)


@pytest.mark.parametrize("format_", ["json", "csv"])
def test_other_formats_hold_the_same(
    spark: Any, sim: RemoteSimulator, tmp_path: Path, format_: str
) -> None:
    sim.bulk(30, keys=3)
    sim.advance(2)
    archived(spark, sim, tmp_path / "lake", format=format_)

    reader = spark.read.option("header", "true").format(format_)
    found = reader.load(str(tmp_path / "lake")).select("sequence_number").collect()

    assert sorted(str(row[0]) for row in found) == sorted(w.sequence_number for w in sim.records)


def test_another_checkpoint_on_the_same_folder_is_refused(
    spark: Any, sim: RemoteSimulator, tmp_path: Path
) -> None:
    sim.bulk(10)
    sim.advance(2)
    archived(spark, sim, tmp_path / "lake")

    with pytest.raises(UsageError, match="with another checkpoint"):
        archived(spark, sim, tmp_path / "lake", checkpoint=str(tmp_path / "other"))
