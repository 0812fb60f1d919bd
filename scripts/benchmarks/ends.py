"""How long what reads up to now takes to believe that it has all, and in how many reads."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

from scripts.benchmarks import commands
from scripts.benchmarks.replay import ARN, Replay, Scenario
from scripts.benchmarks.results import Row

_SHARDS = 1000


def ends(replay: Replay) -> Iterator[Row]:
    """`count` and `--no-follow` of one idle shard and of a thousand, which hold some records."""
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
