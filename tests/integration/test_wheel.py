"""Installed from a wheel, the program is whole: its handlers are there, its types too."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.simulator import Simulator
from watcher import __version__

pytestmark = pytest.mark.proof

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", folder, ROOT],
        check=True,
        timeout=280,
    )
    return next(folder.glob("*.whl"))


def test_a_wheel_has_the_built_in_handlers_and_the_types(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert "watcher/builtin_handlers/print_summary.py" in names
    assert "watcher/py.typed" in names
    assert "pyspark_dynamodb_streams/__init__.py" in names  # where Spark looks for sources
    assert not [name for name in names if name.startswith("tests")]


def test_installed_by_its_name_it_has_its_commands_and_names_itself(
    wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uv = Path(sys.prefix) / "bin" / "uv"
    if not uv.exists():
        pytest.skip("the environment was made without uv")

    def said(*command: str | Path, status: int = 0) -> str:
        done = subprocess.run(command, capture_output=True, text=True, timeout=280, cwd=tmp_path)
        assert done.returncode == status, done.stderr
        return done.stdout + done.stderr

    said(uv, "venv", "--quiet", "--python", sys.executable, "alone")
    said(uv, "pip", "install", "--quiet", "--python", "alone/bin/python", wheel)
    for name in ("watcher", "dynamodb-watcher"):
        assert said(tmp_path / "alone" / "bin" / name, "--version") == f"watcher {__version__}\n"
    with Simulator(table="orders") as sim:
        sim.bulk(3)
        words = ("orders", "--from", "trim-horizon", "--no-follow", "--print-summary")
        for name, value in sim.environment.items():
            monkeypatch.setenv(name, value)
        assert said(tmp_path / "alone" / "bin" / "watcher", *words).count(" - INSERT - ") == 3
    # No public name takes an extra to import.
    said("alone/bin/python", "-c", "from watcher import *")
    hint = said(tmp_path / "alone" / "bin" / "watcher", "demo", status=2)
    assert hint.endswith(f"pip install 'dynamodb-watcher[demo] @ {wheel.as_uri()}'\n")
    ran = said(uv, "tool", "run", "--quiet", "--from", wheel, "dynamodb-watcher", "--version")
    assert ran == f"watcher {__version__}\n"
