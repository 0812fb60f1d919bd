"""An archive holds every change exactly once, whatever has killed the job that writes it."""

import itertools
import json
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

import duckdb
import pandas
import polars
import pyarrow.dataset
import pyarrow.parquet

from tests.simulator import Simulator, judge
from tests.spark.conftest import PATIENCE
from watcher.aws.config import AwsConfig
from watcher.cli import main
from watcher.errors import UsageError
from watcher.spark.jobs.archive import ArchiveFolder
from watcher.stream import Stream
from watcher.time_machine.archives import Archive

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]


def archived(spark: Any, sim: Simulator, to: Path | str, **more: Any) -> int:
    from watcher.spark.jobs import archive

    connection = AwsConfig("us-east-1", None, sim.endpoint)
    totals = archive(
        sim.stream_arn, to=str(to), once=True, connection=connection, spark=spark, **more
    )
    return totals.records


def rows(to: Path) -> list[dict[str, Any]]:
    """Read without Spark, so that what a killed attempt has left would show."""
    if not any(to.glob("batch=*/date=*/*.parquet")):
        return []
    data = pyarrow.dataset.dataset(to, format="parquet", partitioning="hive")
    columns = ["sequence_number", "keys", "new_image", "date", "approximate_creation_time"]
    found: list[dict[str, Any]] = data.to_table(columns=columns).to_pylist()
    return found


def numbers(log: Path) -> list[int]:
    return [int(each.name) for each in log.iterdir() if each.name.isdigit()]


def check(to: Path, sim: Simulator) -> None:
    found = [row["sequence_number"] for row in rows(to)]
    assert judge(sim.records, sorted(found, key=int)) == ([], [], [], [])


def grow(sim: Simulator) -> None:
    sim.bulk(4000, keys=20)
    sim.split()
    sim.bulk(2500, keys=20, remove_every=9)
    sim.rotate()
    sim.bulk(500, keys=20)
    sim.advance(2)


def test_every_change_is_archived_by_date_over_two_runs_and_is_in_a_report(
    spark: Any, sim: Simulator, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grow(sim)
    assert archived(spark, sim, tmp_path / "lake") == 7000
    sim.split()
    sim.advance(24 * 3600 - sim.now % (24 * 3600) + 60)
    sim.bulk(100, keys=20)
    sim.advance(2)
    assert archived(spark, sim, tmp_path / "lake") == 100

    check(tmp_path / "lake", sim)

    made = [*tmp_path.glob("lake*"), *tmp_path.rglob("lake*/**/*")]
    assert {path.stat().st_mode & 0o077 for path in made} == {0}, "nobody else reads them"

    page = tmp_path / "report.html"
    assert main(["report", str(tmp_path / "lake"), "--to", str(page)]) == 0
    assert capsys.readouterr().err.splitlines()[-1] == f"Wrote {page}: 7,100 changes"


POINTS = ("reading", "committing", "written")


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[Simulator, Path]]]:
    """By the point at which a job was killed, its stream and its folder; all on one Spark."""
    place = tmp_path_factory.mktemp("killed")
    with ExitStack() as stack:
        sims = {point: stack.enter_context(Simulator(shards=2)) for point in POINTS}
        for sim in sims.values():
            grow(sim)
            sim.advance(60)  # a backlog
        jobs = {
            point: (sim.stream_arn, sim.endpoint, str(place / point)) for point, sim in sims.items()
        }
        script = [sys.executable, "-m", "tests.spark.crashing", json.dumps(jobs)]
        done = subprocess.run(script, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == -9, done.stderr
        yield {point: (sim, place / point) for point, sim in sims.items()}


@pytest.mark.proof
@pytest.mark.parametrize("point", POINTS)
def test_a_job_killed_at_any_point_goes_on_exactly(
    spark: Any, killed: dict[str, tuple[Simulator, Path]], point: str
) -> None:
    sim, lake = killed[point]
    kept = lake.with_name(f"{point}.checkpoint")
    begun, done = (numbers(kept / log) for log in ("offsets", "commits"))
    assert max(begun) > max(done), "it was to be killed in the middle of a batch"
    found = [row["sequence_number"] for row in rows(lake)]
    assert len(found) == len(set(found)), "others read it as it lies there"

    archived(spark, sim, lake)

    check(lake, sim)


@pytest.mark.proof
def test_a_job_killed_as_it_noted_its_first_batch_begins_again(
    spark: Any, sim: Simulator, tmp_path: Path
) -> None:
    """Spark 4.1 and newer refuse such a checkpoint, unless they are told not to."""
    sim.bulk(10)
    sim.advance(2)
    offsets = tmp_path / "lake.checkpoint" / "offsets"
    offsets.mkdir(parents=True)
    (offsets / ".0.55d0e2b1-7a3c-4be3-9e0d-5e5cbf2b4d0a.tmp").write_text("v1")

    assert archived(spark, sim, tmp_path / "lake") == 10

    check(tmp_path / "lake", sim)


def rows_of(table: Any) -> list[tuple[str, datetime]]:
    return [tuple(row.values()) for row in table.to_pylist()]


def by_polars(lake: Path) -> polars.LazyFrame:
    return polars.scan_parquet(f"{lake}/batch=*/date=*/*.parquet")


def readers(lake: Path) -> dict[str, Callable[[], list[tuple[str, datetime]]]]:
    """How others read a folder of Parquet: each row's number and time."""
    names = ["sequence_number", "approximate_creation_time"]
    sql = f"SELECT {', '.join(names)} FROM read_parquet('{lake}/batch=*/date=*/*.parquet')"
    return {
        "duckdb": lambda: rows_of(found.to_arrow_table()) if (found := duckdb.sql(sql)) else [],
        "polars": lambda: by_polars(lake).select(names).collect().rows(),
        "pandas": lambda: list(
            pandas.read_parquet(lake, columns=names).itertuples(index=False, name=None)
        ),
        "pyarrow": lambda: rows_of(pyarrow.parquet.read_table(lake, columns=names)),
    }


@pytest.mark.proof
def test_others_read_it_while_it_is_written_and_afterwards(
    spark: Any, sim: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each row at most once, no fewer than before, and times are instants for everybody."""
    lake, begun = tmp_path / "lake", sim.now
    sim.bulk(3000, keys=20)
    sim.advance(2)
    archived(spark, sim, lake, max_records=500)
    sim.bulk(3000, keys=20)
    sim.advance(2)
    seen: dict[str, list[int]] = defaultdict(list)
    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(archived, spark, sim, lake, max_records=200)
        while not job.done():
            for name, read in readers(lake).items():
                found = [number for number, _ in read()]
                assert len(found) == len(set(found)), name
                seen[name].append(len(found))
            wait([job], 0.2)  # else this takes the core that the job needs
        assert job.result() == 3000

    assert all(counts == sorted(counts) for counts in seen.values())
    assert len(set(seen["duckdb"])) > 3, "it was read in between"
    expected = sorted(each.sequence_number for each in sim.records)
    times = sorted(row["approximate_creation_time"] for row in rows(lake))
    assert begun - 1 <= times[0].timestamp() < times[-1].timestamp() <= sim.now
    for name, read in readers(lake).items():
        assert sorted(number for number, _ in read()) == expected, name
        assert sorted(time for _, time in read()) == times, name
    assert str(by_polars(lake).collect_schema()["approximate_creation_time"]) == (
        "Datetime(time_unit='us', time_zone='UTC')"
    )
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "lake.md").read_text().partition("## Archive")[2]
    for text in re.findall(r"```python\n(.*?)```", page, re.S):
        exec(compile(text, "docs/lake.md", "exec"), {})


@pytest.mark.proof
def test_in_dynamodb_s_json_it_tells_the_time_machine_all_types(
    spark: Any, sim: Simulator, tmp_path: Path
) -> None:
    item = {"pk": {"S": "a"}, "n": {"N": "1.50"}, "b": {"B": "AA=="}, "s": {"SS": ["x", "y"]}}
    sim.put({**item, "l": {"L": [{"S": "x"}, {"NULL": True}]}})
    sim.put({**item, "empty": {"M": {}}})
    sim.remove("a")
    sim.advance(2)
    archived(spark, sim, tmp_path / "lake", dynamodb_json=True)

    archive = Archive(tmp_path / "lake")
    found = list(archive.records())

    assert archive.exact
    stream = Stream(sim.stream_arn, "trim_horizon", endpoint_url=sim.endpoint, region="us-east-1")
    expected = [record for record in itertools.islice(stream, 3) if record]
    told = [(each.event_name, each.key, each.old, each.new) for each in expected]
    assert [(r.event_name, r.key, r.old, r.new) for r in found] == told
    with pytest.raises(UsageError, match="the checkpoint's images are dynamodb-json"):
        archived(spark, sim, tmp_path / "lake")


@pytest.mark.proof
def test_a_checkpoint_and_its_folder_belong_together(
    spark: Any, sim: Simulator, tmp_path: Path
) -> None:
    """Otherwise changes would be in the folder twice, or never."""
    lake, kept = tmp_path / "lake", tmp_path / "lake.checkpoint"
    for copy in ("older", "newer"):
        sim.bulk(10, keys=5)
        sim.advance(2)
        archived(spark, sim, lake)
        shutil.copytree(kept, tmp_path / copy)
    sim.bulk(10, keys=5)
    sim.advance(2)

    for folder, checkpoint in ((lake, "new"), (lake, "older"), (tmp_path / "other", "newer")):
        with pytest.raises(UsageError, match="that belong together"):
            archived(spark, sim, folder, checkpoint=str(tmp_path / checkpoint))

    lake.rename(tmp_path / "moved")
    kept.rename(tmp_path / "moved.checkpoint")
    assert archived(spark, sim, tmp_path / "moved") == 10
    check(tmp_path / "moved", sim)


def test_a_folder_has_one_job_at_a_time(
    spark: Any, sim: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["watcher.spark.jobs.archive"], "LOCK_SECONDS", 0.0)
    file = tmp_path / "file"
    file.touch()

    with (
        ArchiveFolder(spark, str(tmp_path / "lake")).locked(),
        pytest.raises(UsageError, match="another job is writing"),
    ):
        archived(spark, sim, tmp_path / "lake")
    with pytest.raises(UsageError, match=f"can't make the folder {file}"):
        archived(spark, sim, file)
