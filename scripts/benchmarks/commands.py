"""Runs the programs that are measured, in an environment of their own, and reads /proc."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

ROOT = Path(__file__).parents[2]
HANDLERS = Path(__file__).parent / "handlers"
_TICKS = os.sysconf("SC_CLK_TCK")


def environment(endpoint: str) -> dict[str, str]:
    """What makes an AWS program talk to an endpoint of ours, and to nothing else."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    return kept | {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "benchmark",
        "AWS_SECRET_ACCESS_KEY": "benchmark",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
        "NO_PROXY": "127.0.0.1",
        "PYTHONUNBUFFERED": "",
    }


def watcher(stream: str, *options: str) -> list[str]:
    """The command line, as a user types it."""
    return [sys.executable, "-m", "watcher", stream, "--handlers", str(HANDLERS), *options]


def program(name: str, *arguments: str) -> list[str]:
    """One of this folder's own programs."""
    return [sys.executable, "-m", f"scripts.benchmarks.{name}", *arguments]


def start(
    command: list[str],
    endpoint: str,
    output: IO[bytes] | int = subprocess.DEVNULL,
    limit: Callable[[], None] | None = None,
    complaints: IO[bytes] | int = subprocess.PIPE,
    stdin: IO[bytes] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a program, within a `limit`; what it complains of is shown if it fails."""
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment(endpoint),
        stdout=output,
        stderr=complaints,
        stdin=stdin,
        preexec_fn=limit,
    )


@dataclass
class Done:
    """A program that ran to its end."""

    ended: float
    """By `time.monotonic()`."""
    cpu: float
    """Seconds, those of its child processes included."""
    own_cpu: float
    """Seconds without them, up to a moment before its end."""


def run(command: list[str], endpoint: str, output: IO[bytes] | int = subprocess.DEVNULL) -> Done:
    """Run a program to its end."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    process, own, complaint = start(command, endpoint, output), 0.0, None
    while complaint is None:
        with suppress(subprocess.TimeoutExpired):
            complaint = process.communicate(timeout=0.05)[1]
        with suppress(OSError):
            own = cpu_seconds([process.pid])
    ended = time.monotonic()
    check(process, complaint)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Done(ended, cpu, own)


def check(process: subprocess.Popen[bytes], complaint: bytes) -> None:
    """Raise where a program failed: its figures mean nothing."""
    if process.returncode:
        text = complaint.decode(errors="replace")
        raise RuntimeError(f"{process.args!r} failed with {process.returncode}:\n{text}")


def children(pid: int) -> list[int]:
    """The child processes of a process."""
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def cpu_seconds(pids: list[int]) -> float:
    """The CPU time that processes have used so far."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / _TICKS


def family(pid: int, without: int) -> dict[int, list[str]]:
    """The states of a process and of all below it; one child is left out."""
    found: dict[int, list[str]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has just ended
            found[int(path.parent.name)] = path.read_text().rpartition(")")[2].split()
    pids = [pid]
    for each in pids:
        pids += [child for child in found if int(found[child][1]) == each and child != without]
    return {each: found[each] for each in pids}


def family_cpu_seconds(pid: int, without: int) -> float:
    """The CPU time of a process and all below it, ended ones too; one child is left out."""
    states = family(pid, without).values()
    return sum(sum(map(int, state[11:15])) for state in states) / _TICKS


def unique_memory(pid: int) -> float:
    """What ends with this process (USS), in MB."""
    return _megabytes(f"/proc/{pid}/smaps_rollup", "Private_Clean:", "Private_Dirty:")


def proportional_memory(pid: int) -> float:
    """Its part of what it shares, and what is its own (PSS), in MB: of many, they add up."""
    return _megabytes(f"/proc/{pid}/smaps_rollup", "Pss:")


def resident_memory(pid: int) -> float:
    """What a process holds (RSS), in MB."""
    return _megabytes(f"/proc/{pid}/status", "VmRSS:")


def _megabytes(path: str, *names: str) -> float:
    lines = [line.split() for line in Path(path).read_text().splitlines()]
    return sum(int(line[1]) for line in lines if line and line[0] in names) / 1024
