"""How cost grows with the number of shards, and how long a large stream takes to begin."""

from __future__ import annotations

import resource
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator

from scripts.benchmarks import commands
from scripts.benchmarks.replay import ARN, Replay, Scenario
from scripts.benchmarks.results import Row

_WINDOW_SECONDS = 10.0
_STARTING_SECONDS = 90.0
# The idle pause grows to a second within a few reads, and after a minute beyond.
_SETTLING_SECONDS = 6.0
_RARE_SECONDS = 75.0
_FEW_FILES = 1024
_RETAINED = 684
_CLOSED = 2000


def scale(replay: Replay) -> Iterator[Row]:
    """1 to 3,000 idle shards, asked once a second; 1,000 of them when they are asked less often."""
    for shards in (1, 10, 100, 1000):
        yield from _figures(replay, shards)
    yield from _figures(replay, 1000, poll_max=5)
    yield from _figures(replay, 3000, name="3000 shards, 1,024 open files", files=_FEW_FILES)


def retained(replay: Replay) -> Iterator[Row]:
    """A backlog on 684 shards, and a history of 2,000 closed ones."""
    replay.begin(Scenario(_RETAINED, pages=1, records=100))
    began = time.monotonic()
    records = str(_RETAINED * 100)
    command = commands.watcher(
        ARN, "--read-keys", "--from", "trim-horizon", "--max-records", records
    )
    process = commands.start(command, replay.endpoint)
    complaint = process.communicate()[1]
    commands.check(process, complaint)
    ended = time.monotonic()
    first = replay.begin(Scenario()).first_read
    yield Row(f"{_RETAINED} retained shards: first read after", "s", [first - began], at_most=10)
    yield Row(f"{_RETAINED} retained shards: all read after", "s", [ended - began])
    for start in ("latest", "trim-horizon"):
        calls = _history(replay, start)
        probes = calls["GetShardIterator"] + calls["GetRecords"]
        name = f"{_CLOSED} closed shards, from {start}"
        yield Row(f"{name}: DescribeStream", "calls", [calls["DescribeStream"]])
        yield Row(f"{name}: reads a shard", "calls", [probes / (_CLOSED + 1)])


def _history(replay: Replay, start: str) -> Counter[str]:
    replay.begin(Scenario(1, history=_CLOSED))
    command = commands.watcher(ARN, "--read-keys", "--from", start, "--no-follow")
    process = commands.start(command, replay.endpoint)
    commands.check(process, process.communicate()[1])
    return Counter(replay.begin(Scenario()).calls)


def _figures(
    replay: Replay, shards: int, *, poll_max: float = 1, name: str = "", files: int = 0
) -> Iterator[Row]:
    cpu, memory, calls = _idle(replay, shards, poll_max, files)
    name = name or f"{shards} idle shard{'s' * (shards > 1)}"
    if poll_max > 1:
        name += f" after a minute, --poll-max {poll_max:g}"
    aimed = shards == 1000
    yield Row(f"{name}: CPU", "% of a core", [cpu], at_most=30 if aimed else None)
    yield Row(f"{name}: memory of all processes", "MB", [memory], at_most=512 if aimed else None)
    yield Row(f"{name}: calls", "/s", [calls])


def _idle(replay: Replay, shards: int, poll_max: float, files: int) -> tuple[float, float, float]:
    scenario = Scenario(shards)
    replay.begin(scenario)
    command = commands.watcher(ARN, "--read-keys", "--poll-max", str(poll_max))
    limit = _limited(files) if files else None
    said = subprocess.DEVNULL  # thousands of lines
    process = commands.start(command, replay.endpoint, limit=limit, complaints=said)
    try:
        _wait_for_iterators(replay, scenario, process)
        time.sleep(_RARE_SECONDS if poll_max > 1 else _SETTLING_SECONDS)
        pids = [process.pid, *commands.children(process.pid)]
        replay.begin(scenario)
        began, used = time.monotonic(), commands.cpu_seconds(pids)
        time.sleep(_WINDOW_SECONDS)
        used = commands.cpu_seconds(pids) - used
        seconds = time.monotonic() - began
        calls = replay.begin(scenario).calls.get("GetRecords", 0)
        memory = sum(map(commands.proportional_memory, pids))
        return used / seconds * 100, memory, calls / seconds
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def _wait_for_iterators(
    replay: Replay, scenario: Scenario, process: subprocess.Popen[bytes]
) -> None:
    limit = time.monotonic() + _STARTING_SECONDS
    reading = 0
    while reading < scenario.shards:
        time.sleep(0.5)
        reading += replay.begin(scenario).calls.get("GetShardIterator", 0)
        if process.poll() is not None or time.monotonic() > limit:
            raise RuntimeError(f"{reading} of {scenario.shards} shards are read after a minute")


def _limited(files: int) -> Callable[[], None]:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))

    return limit
