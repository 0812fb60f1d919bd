"""What a TAB offers: bash asks by the script that `completion` prints."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.pages import ROOT

pytestmark = pytest.mark.proof

OFFERED = {
    "watcher arch": ["archive "],
    "watcher orders --max-re": ["--max-records "],
    "watcher orders --at-le": ["--at-least "],
    "watcher orders --color=al": ["always "],
    "AWS_PROFILE=x watcher orders --max-re": ["--max-records "],
    "watcher --help fil": ["filters "],
    "watcher positions -o js": ["json "],
}
_ASK = """
eval "$(watcher completion)"
COMP_LINE=$1 COMP_POINT=${#1} COMP_TYPE=9
_python_argcomplete watcher 2>/dev/null
for each in "${COMPREPLY[@]}"; do printf '%s\\n' "$each"; done
"""


@pytest.mark.parametrize("typed", OFFERED)
def test_a_tab_offers(tmp_path: Path, typed: str) -> None:
    """In a folder with a handler and a file; `watcher` and `python` are ours."""
    for name, text in {
        "handlers/big_orders.py": '"""Big ones."""\nOPTIONS = {"at_least": ("N", "how big")}',
        "state.json": "{}",
        "bin/watcher": '#!/bin/sh\nexec python -m watcher "$@"\n',
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "bin" / "watcher").chmod(0o755)
    path = [str(tmp_path / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]]
    asked = subprocess.run(
        ["bash", "--norc", "-c", _ASK, "-", typed],
        cwd=tmp_path,
        env={**os.environ, "PATH": os.pathsep.join(path), "PYTHONPATH": str(ROOT), "TERM": "xterm"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert asked.stdout.splitlines() == OFFERED[typed], asked.stderr
