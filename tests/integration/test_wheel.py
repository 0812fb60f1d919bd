"""Installed from a wheel, the program is whole: its handlers are there, its types too."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.simulator import Simulator

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", folder, ROOT],
        check=True,
        timeout=100,
    )
    return next(folder.glob("*.whl"))


def test_a_wheel_has_the_built_in_handlers_and_the_types(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert "watcher/builtin_handlers/print_summary.py" in names
    assert "watcher/py.typed" in names
    assert "pyspark_dynamodb_streams/__init__.py" in names  # where Spark looks for sources
    assert not [name for name in names if name.startswith("tests")]


def test_the_program_runs_from_a_wheel(wheel: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    program = (
        "import sys; sys.path.insert(0, sys.argv.pop(1)); from watcher.cli import main; main()"
    )
    with Simulator.spawn(table="orders") as sim:
        sim.bulk(3)
        done = subprocess.run(
            [
                *(sys.executable, "-c", program, site),
                *("orders", "--from", "trim-horizon", "--no-follow", "--print-summary"),
            ],
            env={**__import__("os").environ, **sim.environment},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
    assert len(done.stdout.splitlines()) == 3
