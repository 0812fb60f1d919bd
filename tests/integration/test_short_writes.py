"""Writes that are cut short, refused or never read, through the real command line: nothing is lost.

Each watch is ended somehow, and a second one goes on from its checkpoint: together they have
printed every record, and no half line stands between two.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.simulator import Simulator, judge

pytestmark = pytest.mark.proof

COUNT = 3000
DISK = 200_000
# From the first record on: what a watch needs to begin is not in question.
FILLING = f"""
import resource
import sys


def handle(record):
    sys.dont_write_bytecode = True  # Python does not see that it has written half of a module
    resource.setrlimit(resource.RLIMIT_FSIZE, ({DISK}, {DISK}))
"""


@pytest.fixture(scope="module")
def sim() -> Iterator[Simulator]:
    with Simulator(table="orders", seed=5) as simulator:
        simulator.bulk(COUNT)
        yield simulator


class Runs:
    """Watches of one checkpoint, from the trim horizon on."""

    def __init__(self, sim: Simulator, folder: Path, unbuffered: str) -> None:
        self.sim = sim
        self.folder = folder
        self._environment = {**os.environ, **sim.environment, "PYTHONUNBUFFERED": unbuffered}

    def begin(self, *options: str, **more: Any) -> subprocess.Popen[Any]:
        """Start one."""
        words = ("orders", "--from", "trim-horizon", "--checkpoint", "c.json", *options)
        with (self.folder / "err").open("w") as err:
            both = more.pop("output", None)
            pipes = {"stderr": err} if both is None else {"stdout": both, "stderr": both}
            return subprocess.Popen(
                [sys.executable, "-m", "watcher", *words],
                env=self._environment,
                cwd=self.folder,
                **pipes,
                **more,
            )

    @property
    def said(self) -> list[str]:
        return (self.folder / "err").read_text().splitlines()

    def check(self, *outputs: bytes) -> None:
        """Whether everything is there, in whole lines."""
        lines = b"".join(outputs).splitlines()
        found = [json.loads(line)["dynamodb"]["SequenceNumber"] for line in lines]
        verdict = judge(self.sim.records, found)
        assert not verdict.lost and not verdict.unknown

    def rest(self, *options: str, status: int = 0, **more: Any) -> bytes:
        """What a second watch prints, up to now."""
        with self.begin("--no-follow", *options, stdout=subprocess.PIPE, **more) as program:
            out, _ = program.communicate(timeout=60)
        assert program.returncode == status, self.said
        return bytes(out)


def wait_until_full(pipe: int) -> None:
    """Until a pipe has no room, and for a moment nothing has gone into it: its writer waits."""
    before, end = -1, time.monotonic() + 60
    writing = os.open(f"/proc/self/fd/{pipe}", os.O_WRONLY | os.O_NONBLOCK)
    try:
        while time.monotonic() < end:
            (size,) = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4))
            if size == before and not select.select([], [writing], [], 0)[1]:
                return
            before = size
            time.sleep(0.2)
    finally:
        os.close(writing)
    raise AssertionError("it was not filled")


def read_slowly(pipe: int) -> bytes:
    got = b""
    while data := os.read(pipe, 40_000):
        got += data
        time.sleep(0.0005)
    return got


@pytest.fixture(params=["", "1"], ids=["buffered", "unbuffered"])
def runs(sim: Simulator, tmp_path: Path, request: pytest.FixtureRequest) -> Runs:
    return Runs(sim, tmp_path, request.param)


def test_a_signal_while_a_slow_pipe_is_written_loses_nothing(runs: Runs) -> None:
    reading, writing = os.pipe()
    with runs.begin("-pj", stdout=writing) as program:
        os.close(writing)
        wait_until_full(reading)
        program.send_signal(signal.SIGTERM)
        out = read_slowly(reading)
        assert program.wait(60) == 0
    os.close(reading)
    assert runs.said[-1].startswith("Done: ")
    runs.check(out, runs.rest("-pj"))


@pytest.mark.parametrize("option", ["-pj", "--jsonl-file"])
def test_a_disk_that_fills_up_ends_it_at_a_whole_line_before_the_checkpoint(
    runs: Runs, option: str
) -> None:
    path = runs.folder / "all.jsonl"
    options = ("--no-follow", *((option,) if option == "-pj" else (option, "all.jsonl")))
    (runs.folder / "filling.py").write_text(FILLING)
    for full in (True, False):
        before = ("--handlers", ".", "--filling") if full else ()
        with path.open("ab") as file, runs.begin(*before, *options, stdout=file) as program:
            assert program.wait(60) == int(full), runs.said
        if full:
            assert sum("File too large" in line for line in runs.said) == 1
            assert "Traceback" not in "".join(runs.said)
            assert path.read_bytes().endswith(b"}\n")
            assert 0 < path.stat().st_size <= DISK
    runs.check(path.read_bytes())
