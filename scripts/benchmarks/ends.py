"""How long what reads up to now takes to believe that it has all, and in how many reads."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

from scripts.benchmarks import commands
from scripts.benchmarks.replay import ARN, Replay, Scenario
from scripts.benchmarks.results import Row

_SHARDS = 1000
_CLOSED = 64


def ends(replay: Replay) -> Iterator[Row]:
    """`count` and `--no-follow` of one idle shard and of a thousand, which hold some records.

    And `--no-follow` of a disabled stream, which waits until listings show all children.
    """
    for shards in (1, _SHARDS):
        scenario = Scenario(shards, pages=1, records=3)
        whole = ["--read-keys", "--from", "trim-horizon", "--no-follow"]
        for name, command in {
            "count": [sys.executable, "-m", "watcher", "count", ARN],
            "--no-follow": commands.watcher(ARN, *whole),
        }.items():
            replay.begin(scenario)
            began = time.monotonic()
            ended = commands.run(command, replay.endpoint).ended
            reads = replay.begin(Scenario()).calls["GetRecords"]
            what = f"{name} of {shards} idle shard{'s' * (shards > 1)}"
            yield Row(f"{what}: ends after", "s", [ended - began], at_most=5)
            # One of them brings the records.
            yield Row(f"{what}: empty reads a shard", "calls", [reads / shards - 1], at_most=5)
    what = f"--no-follow of {_CLOSED} closed shards: ends after its last record"
    yield Row(what, "s", [_after_last_record(replay) for _ in range(3)], at_most=3)


def _after_last_record(replay: Replay) -> float:
    replay.begin(Scenario(_CLOSED, pages=1, records=3, disabled=True))
    command = commands.watcher(ARN, "--print-summary", "--from", "trim-horizon", "--no-follow")
    process = commands.start(command, replay.endpoint, subprocess.PIPE)
    assert process.stdout is not None
    last = 0.0
    for _ in process.stdout:
        last = time.monotonic()
    commands.check(process, process.communicate()[1])
    return time.monotonic() - last
