"""What a TAB offers: bash asks by the script that `completion` prints."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.proof

ROOT = Path(__file__).parents[2]

OFFERED = {
    "watcher arch": ["archive "],
    "watcher orders --max-re": ["--max-records "],
    "watcher orders --at-le": ["--at-least "],
    "watcher orders --handlers more --in-": ["--in-more "],
    "watcher orders --color=al": ["always "],
    "watcher orders --on-error dead-letter:sta": ["state.json "],
    "watcher orders --only insert,mo": ["insert,modify "],
    "watcher orders --filter @sta": ["@state.json "],
    "watcher orders --profile team": ["team-a "],
    "watcher orders --help lam": ["lambda "],
    "AWS_PROFILE=x watcher orders --max-re": ["--max-records "],
    # Never files where none are meant.
    "watcher orders --max-records sta": [],
    "watcher orders sta": [],
}
_ASK = """
eval "$(watcher completion)"
COMP_LINE=$1 COMP_POINT=${#1} COMP_TYPE=9
_python_argcomplete watcher 2>/dev/null
for each in "${COMPREPLY[@]}"; do printf '%s\\n' "$each"; done
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a handler, functions and a file; `watcher` and `python` are ours."""
    folder = tmp_path_factory.mktemp("place")
    for name, text in {
        "handlers/big_orders.py": '"""Big ones."""\nOPTIONS = {"at_least": ("N", "how big")}',
        "more/in_more.py": '"""Another."""',
        "app/changes.py": "def note(record): ...\ndef _hidden(): ...",
        "app/__init__.py": "",
        "state.json": "{}",
        "aws": "[profile team-a]\n[default]\n",
    }.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    (folder / "bin").mkdir()
    (folder / "bin" / "watcher").write_text('#!/bin/sh\nexec python -m watcher "$@"\n')
    (folder / "bin" / "watcher").chmod(0o755)
    return folder


def environment(place: Path) -> dict[str, str]:
    """With ours first, and nothing of this shell's AWS."""
    mine = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    return {
        **mine,
        "PATH": os.pathsep.join(
            [str(place / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]]
        ),
        "PYTHONPATH": str(ROOT),
        "AWS_CONFIG_FILE": str(place / "aws"),
        "HOME": str(place),
        "TERM": "xterm",
    }


@pytest.mark.parametrize("typed", OFFERED)
def test_a_tab_offers(place: Path, typed: str) -> None:
    if (bash := shutil.which("bash")) is None:
        pytest.skip("there is no bash")
    asked = subprocess.run(
        [bash, "--norc", "-c", _ASK, "-", typed],
        cwd=place,
        env=environment(place),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert asked.stdout.splitlines() == OFFERED[typed], asked.stderr
