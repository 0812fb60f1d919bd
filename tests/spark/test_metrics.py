"""Counts by kind and window, through the real command line."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

import pyarrow.dataset

from tests.simulator import RemoteSimulator
from tests.spark.conftest import Run
from watcher.spark.lake import Lake

pytestmark = pytest.mark.spark


def metrics(command: Run, sim: RemoteSimulator, *more: str) -> Any:
    place = ["--endpoint-url", sim.endpoint, "--region", "us-east-1"]
    return command("metrics", sim.stream_arn, *place, "--from", "trim-horizon", "--once", *more)


def written(to: Path) -> list[dict[str, Any]]:
    """The windows in the files, read without Spark: there is nothing else in the folder."""
    assert {path.suffix for path in to.iterdir()} == {".parquet"}
    rows: list[dict[str, Any]] = pyarrow.dataset.dataset(to).to_table().to_pylist()
    return rows


def test_counts_are_printed_by_kind_and_window_as_json(
    command: Run, sim: RemoteSimulator, tmp_path: Path
) -> None:
    sim.bulk(100, keys=10, remove_every=5)
    sim.advance(3600)
    sim.bulk(20, keys=10)
    sim.advance(2)

    kept = str(tmp_path / "kept")
    done = metrics(command, sim, "--window", "10m", "-o", "json", "--checkpoint", kept)

    assert done.status == 0
    rows = [json.loads(line) for line in done.out.splitlines()]
    newest = {(row["start"], row["event_name"]): row["count"] for row in rows}
    assert sum(newest.values()) == 120
    assert {name for _, name in newest} == {"INSERT", "MODIFY", "REMOVE"}
    assert all(row["start"].endswith("Z") and row["start"] < row["end"] for row in rows)
    assert "Done: 120 changes" in done.err


def test_files_hold_each_window_once_over_several_runs(
    command: Run, sim: RemoteSimulator, tmp_path: Path
) -> None:
    to = tmp_path / "counts"
    for _ in range(3):
        sim.bulk(50, keys=10, remove_every=5)
        sim.advance(1200)
        sim.bulk(10, keys=10)
        sim.advance(2)
        assert metrics(command, sim, "--window", "1m", "--to", str(to)).status == 0
        sim.advance(1200)

    rows = written(to)
    windows = [(row["start"], row["event_name"]) for row in rows]
    assert len(windows) == len(set(windows))
    # The last changes' own windows are not final yet.
    assert 120 <= sum(row["count"] for row in rows) <= 170


def test_a_batch_that_is_in_when_a_kill_comes_is_completed_and_counted(
    command: Run, sim: RemoteSimulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark had not noted it, and takes no batch that does not keep the counts so far."""
    to = tmp_path / "counts"
    append = Lake.append

    def killed(self: Lake, write: Callable[[str], None], number: int) -> list[str]:
        files = append(self, write, number)
        assert number == 0, "killed"  # that one is empty
        return files

    sim.bulk(50, keys=10)
    sim.advance(1200)
    sim.bulk(10, keys=10)
    sim.advance(2)
    with monkeypatch.context() as patch:
        patch.setattr(Lake, "append", killed)
        assert metrics(command, sim, "--to", str(to), "--late", "1m").status == 1
    again = metrics(command, sim, "--to", str(to), "--late", "1m")

    assert again.status == 0, again.err
    assert again.err.splitlines()[-1].startswith("Done: 60 changes in ")
    assert sum(row["count"] for row in written(to)) == 50


def test_a_change_that_comes_too_late_is_in_no_file_and_one_in_time_is(
    command: Run, sim: RemoteSimulator, tmp_path: Path
) -> None:
    """A clock 30 minutes behind is later than the watermark, one of 5 minutes is not."""
    to = tmp_path / "counts"
    options = ["--window", "1m", "--to", str(to), "--late", "10m"]
    sim.bulk(10, keys=1)
    sim.advance(1800)
    sim.bulk(10, keys=1)
    metrics(command, sim, *options)
    late, in_time = sim.now - 1800, sim.now - 300
    for moment in (late, in_time):
        template = {
            "eventName": "MODIFY",
            "dynamodb": {
                "Keys": {"pk": {"S": "k0"}},
                "ApproximateCreationDateTime": moment,
            },
        }
        sim.append(template)
    too_late = metrics(command, sim, *options)
    sim.advance(3600)
    sim.bulk(1, keys=1)
    others = [metrics(command, sim, *options) for _ in range(2)]

    counts: Counter[str] = Counter()
    for row in written(to):
        counts[row["start"].isoformat()] += row["count"]
    assert sorted(counts.values()) == [1, 10, 10]
    assert "At least 1 change came after their windows were final" in too_late.err
    assert "At least" not in "".join(done.err for done in others)


def test_files_checkpoint_and_window_stay_together(
    command: Run, sim: RemoteSimulator, tmp_path: Path
) -> None:
    to, other, kept = (str(tmp_path / name) for name in ("counts", "other", "kept"))
    sim.bulk(50, keys=10)
    sim.advance(1200)
    sim.bulk(10, keys=10)
    sim.advance(2)

    def statuses(*options: str) -> tuple[int, str]:
        done = metrics(command, sim, *options)
        return done.status, done.err.splitlines()[-1]

    assert statuses("--to", to)[0] == 0
    own = ("--to", other, "--checkpoint", f"{to}.checkpoint")
    for options, text in (
        (("--to", to, "--checkpoint", kept), "was written with another checkpoint"),
        (own, "give that folder and format"),
        (("--to", to, "--window", "2m"), "belongs to the Parquet (1 minutes windows) files in"),
    ):
        status, last = statuses(*options)
        assert status == 2
        assert text in last
    assert statuses("--to", to)[0] == 0


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--output", "xml"], "--output xml: use lines or json"),
        (["--window", "soon", "--checkpoint", "x"], "--window: can't read 'soon' as a time"),
        (["--every", "1s", "--checkpoint", "x"], "--once and --every can't be combined"),
        (
            [],
            "--once: give --to or --checkpoint as well, to resume from; for the",
        ),
    ],
)
def test_what_cannot_be_is_said_in_a_line(
    command: Run, sim: RemoteSimulator, options: list[str], text: str
) -> None:
    done = metrics(command, sim, *options)

    assert done.status == 2
    assert done.err.splitlines()[-1].startswith(f"error: {text}")
