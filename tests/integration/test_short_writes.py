"""A disk that is full, through the real command line: nothing is lost.

The watch ends, and a second one goes on from its checkpoint: together they have printed every
record, and no half line stands between two.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

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

    def run(self, *options: str, stdout: IO[bytes]) -> int:
        """Run one up to now; its exit status."""
        words = ("orders", "--from", "trim-horizon", "--checkpoint", "c.json", "--no-follow")
        with (self.folder / "err").open("w") as err:
            return subprocess.run(
                [sys.executable, "-m", "watcher", *words, *options],
                env=self._environment,
                cwd=self.folder,
                stdout=stdout,
                stderr=err,
                timeout=60,
            ).returncode

    @property
    def said(self) -> list[str]:
        return (self.folder / "err").read_text().splitlines()


@pytest.fixture(params=["", "1"], ids=["buffered", "unbuffered"])
def runs(sim: Simulator, tmp_path: Path, request: pytest.FixtureRequest) -> Runs:
    return Runs(sim, tmp_path, request.param)


@pytest.mark.parametrize("option", ["-pj", "--jsonl-file"])
def test_a_disk_that_fills_up_ends_it_at_a_whole_line_before_the_checkpoint(
    runs: Runs, option: str
) -> None:
    path = runs.folder / "all.jsonl"
    options = (option,) if option == "-pj" else (option, "all.jsonl")
    (runs.folder / "filling.py").write_text(FILLING)
    for full in (True, False):
        before = ("--handlers", ".", "--filling") if full else ()
        with path.open("ab") as file:
            assert runs.run(*before, *options, stdout=file) == int(full), runs.said
        if full:
            assert sum("File too large" in line for line in runs.said) == 1
            assert "Traceback" not in "".join(runs.said)
            assert path.read_bytes().endswith(b"}\n")
            assert 0 < path.stat().st_size <= DISK
    lines = path.read_bytes().splitlines()
    found = [json.loads(line)["dynamodb"]["SequenceNumber"] for line in lines]
    verdict = judge(runs.sim.records, found)
    assert not verdict.lost and not verdict.unknown
