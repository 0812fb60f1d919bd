"""What watching costs while nothing happens, and how much memory a backlog takes."""

from __future__ import annotations

import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator

from scripts.benchmarks import commands
from scripts.benchmarks.replay import ARN, Replay, Scenario
from scripts.benchmarks.results import Row

_WINDOW_SECONDS = 10.0
# The idle pause grows to a second within a few reads.
_SETTLING_SECONDS = 8.0
_STARTING_SECONDS = 60.0
_PAIRS = 3
# Of the watch's own accord.
_PROCESSES = 64


def idle(replay: Replay) -> Iterator[Row]:
    """CPU, unique memory and calls at 1, 100 and 500 shards on which nothing happens."""
    for shards in (1, 100, 500):
        aimed = shards == 500
        cpu, memory, calls = _idle(replay, shards)
        name = f"{shards} idle shard{'s' * (shards > 1)}"
        yield Row(f"{name}: CPU", "% of a core", [cpu], at_most=30 if aimed else None)
        yield Row(f"{name}: USS a process", "MB", [memory], at_most=8 if aimed else None)
        yield Row(f"{name}: calls a shard", "/s", [calls], at_most=1 if aimed else None)


def history(replay: Replay) -> Iterator[Row]:
    """CPU at 500 shards with seven generations and a checkpoint, beside neither of them."""
    for name, changes in (("idle", 0), ("a change a second each", 1)):
        pairs = [
            (
                _idle(replay, 500, history=7, changes=changes, checkpoint=True)[0],
                _idle(replay, 500, changes=changes)[0],
            )
            for _ in range(_PAIRS)
        ]
        ours, without = zip(*pairs, strict=True)
        yield Row(
            f"500 shards, {name}, 7 generations, checkpoint: CPU",
            "% of a core",
            list(ours),
            compared=list(without),
            ratio_at_most=1.1,
            note="compared with neither",
        )


def _idle(
    replay: Replay, shards: int, *, history: int = 0, changes: int = 0, checkpoint: bool = False
) -> tuple[float, float, float]:
    pages = 0
    replay.begin(Scenario(shards, history=history))
    with tempfile.TemporaryDirectory() as folder:
        options = ["--checkpoint", f"{folder}/checkpoint"] if checkpoint else []
        command = commands.watcher(ARN, "--read-keys", "--poll-max", "1", *options)
        process = commands.start(command, replay.endpoint)
        try:
            limit = time.monotonic() + _STARTING_SECONDS
            processes = min(shards, _PROCESSES)
            while len(commands.children(process.pid)) < processes and time.monotonic() < limit:
                time.sleep(0.2)
            time.sleep(_SETTLING_SECONDS)
            workers = commands.children(process.pid)
            if len(workers) < processes:
                raise RuntimeError(f"{len(workers)} of {processes} workers after a minute")
            pids = [process.pid, *workers]
            began, used = time.monotonic(), commands.cpu_seconds(pids)
            replay.begin(Scenario(shards, history=history))
            calls = 0
            while time.monotonic() < began + _WINDOW_SECONDS:
                time.sleep(1.0)
                pages += changes
                figures = replay.begin(Scenario(shards, pages, records=1, history=history))
                calls += figures.calls.get("GetRecords", 0)
            used = commands.cpu_seconds(pids) - used
            seconds = time.monotonic() - began
            memory = statistics.median(map(commands.unique_memory, workers[:50]))
            return used / seconds * 100, memory, calls / shards / seconds
        finally:
            process.send_signal(signal.SIGTERM)
            commands.check(process, process.communicate()[1])


def memory(replay: Replay) -> Iterator[Row]:
    """The manager's memory while it works through a million records on ten shards."""
    shards, pages = 10, 100
    replay.begin(Scenario(shards, pages=pages))
    options = ["--from", "trim-horizon", "--max-records", "1000000"]
    command = commands.watcher(ARN, "--read-keys", *options)
    process = commands.start(command, replay.endpoint)
    sizes: list[float] = []
    while True:
        try:
            process.wait(0.1)
            break
        except subprocess.TimeoutExpired:
            sizes.append(commands.resident_memory(process.pid))
    commands.check(process, process.communicate()[1])
    working = [size for size in sizes if size > 0]
    third = max(len(working) // 3, 1)
    growth = statistics.median(working[-third:]) - statistics.median(working[third : 2 * third])
    yield Row("1 M records: manager's RSS, highest", "MB", [max(working)], at_most=150)
    yield Row("1 M records: growth in the last third", "MB", [growth], at_most=10)
