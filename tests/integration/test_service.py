"""Every block of docs/service.md runs, in the framework that it is about."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.simulator import Simulator
from tests.support import pages

pytestmark = pytest.mark.proof

ROOT = Path(__file__).parents[2]
PAGE = pages.PAGES["service.md"]
FILES = pages.files(PAGE)
CELLS = [text for text in pages.of_kind("python", PAGE) if text.startswith("# cell")]


@pytest.fixture(scope="module")
def sim() -> Iterator[Simulator]:
    with Simulator(table="orders", shards=2) as simulator:
        simulator.write("a", 3)
        simulator.modify("a", {"v": {"N": "7"}})
        simulator.write("b", 3)
        yield simulator


@pytest.fixture
def place(tmp_path: Path, sim: Simulator, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    for name, value in sim.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), *sys.path[1:]]))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words: str, seconds: float = 60) -> str:
    done = subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, timeout=seconds, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    return done.stdout


def test_a_thread_is_ended_by_its_event(place: Path) -> None:
    assert re.fullmatch(r"[5-7] keys\n", run("-X", "dev", "in_a_thread.py"))
    assert (place / "state.json").exists()


def test_fastapi_serves_while_a_task_follows(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    testclient = pytest.importorskip("fastapi.testclient")
    monkeypatch.syspath_prepend(str(place))
    import changes_api  # type: ignore[import-not-found]

    with testclient.TestClient(changes_api.app) as client:
        for _ in range(100):
            found = client.get("/changes").json()
            if len(found) == 2:
                break
            time.sleep(0.05)
    assert sorted(found) == ["{'pk': 'a'}", "{'pk': 'b'}"]


def test_jupyter_takes_a_cell_that_follows_and_one_that_watches(place: Path) -> None:
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    cells = [nbformat.v4.new_code_cell(text) for text in CELLS]
    notebook = nbformat.v4.new_notebook(cells=cells)
    nbclient.NotebookClient(notebook, timeout=60, kernel_name="python3").execute()
    followed, watched = (
        "".join(output.get("text", "") for output in cell.outputs if output.name == "stdout")
        for cell in notebook.cells
    )
    assert followed.splitlines()[-1] == "MODIFY {'pk': 'a'}"
    assert len(watched.splitlines()) == 7
