"""From the command to the first record on standard output."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator

from scripts.benchmarks import commands
from scripts.benchmarks.replay import ARN, Replay, Scenario
from scripts.benchmarks.results import Row

_RUNS = 7


def start(replay: Replay) -> Iterator[Row]:
    """One record waits on one shard."""
    yield Row("first record on stdout", "s", [_once(replay) for _ in range(_RUNS)], at_most=0.35)


def _once(replay: Replay) -> float:
    replay.begin(Scenario(1, 1, records=1))
    began = time.monotonic()
    command = commands.watcher(ARN, "--from", "trim-horizon", "--print-summary")
    process = commands.start(command, replay.endpoint, subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    seconds = time.monotonic() - began
    process.send_signal(signal.SIGTERM)
    commands.check(process, process.communicate()[1])
    return seconds
