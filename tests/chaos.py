"""Chaos: the real program against a service that fails all the time, killed again and again.

`scripts/chaos --seeds 10 --records 50000` starts `python -m watcher … --print-json --checkpoint …`
as a user would, on a simulator in a process of its own, and meanwhile writes, splits and rotates,
kills, stops and continues shard processes, and kills the program and starts it again. What came
out of its standard output is then compared with what was written.

Four numbers per seed, all of which have to be 0:

- lost: written, and delivered by no run of the program;
- repeated within a run: delivered twice by the same run;
- out of order: delivered for the first time after a later change of the same item was, or after
  it within one run;
- repeated too much: a restart repeated a record that the run before had delivered longer ago than
  one checkpoint interval when it was killed (or at all, where it had been ended by SIGTERM).

The seed decides what is written, where shards split, which faults there are and in which order
processes are hit; how this falls together in time is the machine's own.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from tests.simulator import Faults, Simulator, Written, judge
from tests.simulator.control import RemoteSimulator
from tests.support import prefork

ROOT = Path(__file__).parents[1]
# The checkpoint is saved every second, looked after five times a second, and fsynced; the rest is
# for a machine that has more to do.
CHECKPOINT_INTERVAL = 3.0
STALL_SECONDS = 60.0
_NUMBER = re.compile(rb'"SequenceNumber":"(\d+)"')
_MOST_BEHIND = 12_000
_MOST_SHARDS = 16
_LARGEST_WRITE = 1_500
_NOTHING_READ = 3


@dataclass
class Run:
    """One run of the program: what it delivered and when, and how it ended."""

    numbers: list[str] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    ended: float = 0.0
    killed: bool = False
    sleeps: list[tuple[float, float]] = field(default_factory=list)
    """When all its processes were stopped, and until when."""

    def age(self, delivered: float) -> float:
        """How many seconds before its end it delivered a record, without those it slept."""
        slept = (max(0.0, until - max(since, delivered)) for since, until in self.sleeps)
        return self.ended - delivered - sum(slept)


@dataclass
class Verdict:
    """What became of one seed."""

    seed: int
    settings: str
    seconds: float
    written: int
    lost: int = 0
    repeated_within: int = 0
    out_of_order: int = 0
    repeated_too_much: int = 0
    unknown: int = 0
    repeated: int = 0
    """Across restarts, within what a checkpoint interval can hold."""
    oldest_repeat: float = 0.0
    """How many seconds before the kill the oldest of them had been delivered."""
    complaints: list[str] = field(default_factory=list)
    injected: Counter[str] = field(default_factory=Counter)

    @property
    def is_good(self) -> bool:
        bad = self.lost + self.repeated_within + self.out_of_order + self.repeated_too_much
        return not bad and not self.unknown and not self.complaints


def judge_runs(written: Sequence[Written], runs: Sequence[Run], verdict: Verdict) -> None:
    """Compare the runs' deliveries with what was written."""
    whole = judge(written, (number for run in runs for number in run.numbers))
    verdict.lost = len(whole.lost)
    verdict.unknown = len(whole.unknown)
    out_of_order = set(whole.out_of_order)
    last_seen: dict[str, tuple[int, float]] = {}
    for index, run in enumerate(runs):
        own = judge(written, run.numbers)
        verdict.repeated_within += len(own.repeated)
        out_of_order.update(own.out_of_order)
        for number in run.numbers:
            before = last_seen.get(number)
            if before is None or before[0] == index:
                continue
            verdict.repeated += 1
            earlier = runs[before[0]]
            age = earlier.age(before[1])
            verdict.oldest_repeat = max(verdict.oldest_repeat, age)
            if not earlier.killed or age > CHECKPOINT_INTERVAL:
                verdict.repeated_too_much += 1
        last_seen.update(
            (number, (index, moment)) for number, moment in zip(run.numbers, run.times, strict=True)
        )
    verdict.out_of_order = len(out_of_order)


def children(parent: int) -> list[int]:
    """A process's children."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                # After the name in brackets: state, parent, …
                if (entry / "stat").read_text().rpartition(")")[2].split()[1] == str(parent):
                    found.append(int(entry.name))
    return sorted(found)


class Program:
    """`python -m watcher`, as a user runs it, again and again on one checkpoint."""

    def __init__(self, sim: RemoteSimulator, arguments: Sequence[str], folder: Path) -> None:
        self.runs: list[Run] = []
        self.seen: set[str] = set()
        self.checkpoint = folder / "checkpoint.json"
        self.log = folder / "log"
        self._environment = {**os.environ, **sim.environment}
        self._arguments = [
            *(sim.stream_arn, "--print-json", "--poll-max", "0.2"),
            *("--checkpoint", str(self.checkpoint)),
            *arguments,
        ]
        self._folder = folder
        self._process: prefork.Forked | subprocess.Popen[Any] | None = None
        self._reading: threading.Thread | None = None

    def start(self, *more: str) -> None:
        """Start another run; it resumes where the last one stood."""
        run = Run()
        self.runs.append(run)
        reading, writing = os.pipe()
        with open(self.log, "ab") as log, open(writing, "wb") as output:
            self._process = prefork.start(
                "watcher",
                [*self._arguments, *more],
                cwd=self._folder,
                env=self._environment,
                stdout=output,
                stderr=log,
            )
        self._reading = threading.Thread(target=self._read, args=(reading, run))
        self._reading.start()

    def _read(self, reading: int, run: Run) -> None:
        with open(reading, "rb") as pipe:
            self._read_lines(pipe, run)

    def _read_lines(self, pipe: IO[bytes], run: Run) -> None:
        for line in pipe:
            match = _NUMBER.search(line)
            # What a kill cut off in the middle was not delivered.
            if match and line.endswith(b"\n"):
                number = match[1].decode()
                run.numbers.append(number)
                run.times.append(time.monotonic())
                self.seen.add(number)

    def end(self, number: int, *, within: float = 30.0) -> int:
        """Send a signal and take in what is left; the exit status."""
        assert self._process is not None and self._reading is not None
        run = self.runs[-1]
        run.killed = number == signal.SIGKILL
        run.ended = time.monotonic()
        if number:
            self._process.send_signal(number)
        try:
            status = self._process.wait(within)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            status = self._process.wait()
        self._reading.join(within)
        if self._reading.is_alive():
            os.killpg(self._process.pid, signal.SIGKILL)
            raise AssertionError("a shard process outlived the program")
        return status

    def shard_processes(self) -> list[int]:
        """The program's children."""
        assert self._process is not None
        return children(self._process.pid)

    def signal_group(self, number: int) -> None:
        assert self._process is not None
        os.killpg(self._process.pid, number)

    @property
    def has_ended(self) -> bool:
        """Whether it ended by itself."""
        return self._process is not None and self._process.poll() is not None

    def clean_up(self) -> None:
        """Leave nothing running, whatever happened."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        if self._reading is not None:
            self._reading.join()


def faults_of(rng: random.Random) -> Faults:
    """The faults of one seed: all at once, some habits of the service by chance."""
    at_timestamp = rng.random() < 0.5
    return Faults(
        throttle_rate=0.10,
        error_rate=0.05,
        reset_rate=0.03,
        truncate_rate=0.005,
        invalid_json_rate=0.005,
        empty_page_rate=0.20,
        short_page_rate=0.20,
        last_page_empty=rng.random() < 0.3,
        listing_lag=rng.choice((0.0, 1.0, 2.5)),
        closing_lag=rng.choice((0.0, 2.5, float("inf"))),
        lag_jitter=True,
        children_first=rng.random() < 0.5,
        child_filter=rng.random() < 0.5,
        describe_page=rng.choice((10, 100)),
        iterator_seconds=3.0,
        at_timestamp=at_timestamp,
        # DynamoDB Local's whole minutes, which knows no AT_TIMESTAMP.
        granularity=1.0 if at_timestamp else rng.choice((1.0, 60.0)),
    )


class Chaos:
    """One seed: writes and disturbs until all is written, then waits until all is delivered."""

    def __init__(self, seed: int, records: int, folder: Path) -> None:
        self.seed = seed
        self._rng = random.Random(seed)
        self._records = records
        self._folder = folder
        self._done: Counter[str] = Counter()
        self._timers: list[threading.Timer] = []
        self._written = 0
        self._start = self._rng.choice(("latest", "trim-horizon", "1h"))
        self._ends_by_itself = self._rng.random() < 0.5
        self._processes = 2 if seed % 2 else 64  # so that shards share them, or do not

    def run(self) -> Verdict:
        """The whole run, and its verdict."""
        began = time.monotonic()
        faults = faults_of(self._rng)
        shards = self._rng.randint(1, 8)
        settings = (
            f"{shards} shards, --from {self._start}, lag {faults.listing_lag:g}/"
            f"{faults.closing_lag:g} s"
            + (", children first" if faults.children_first else "")
            + ("" if faults.child_filter else ", no filter")
            + ("" if faults.at_timestamp else ", no AT_TIMESTAMP")
            + (", ended by --no-follow" if self._ends_by_itself else "")
        )
        with Simulator.spawn(seed=self.seed, shards=shards, faults=faults) as self._sim:
            self._program = Program(
                self._sim,
                ["--from", self._start, "--processes", str(self._processes)],
                self._folder,
            )
            try:
                complaints = self._disturb()
            except AssertionError as error:
                complaints = [str(error)]
            finally:
                for timer in self._timers:
                    timer.cancel()
                self._program.clean_up()
            written = self._sim.records
            injected = self._sim.injected + self._done
        verdict = Verdict(self.seed, settings, 0.0, len(written))
        verdict.complaints = complaints + self._complaints_in_log()
        verdict.injected = injected
        judge_runs(written, self._program.runs, verdict)
        verdict.seconds = time.monotonic() - began
        return verdict

    @property
    def _behind(self) -> int:
        return self._written - len(self._program.seen)

    def _disturb(self) -> list[str]:
        if self._start != "latest":
            self._write(self._rng.randint(0, self._records // 5))
        self._program.start()
        if self._start == "latest":
            self._await(lambda: "Watching" in self._log(), "the program does not start")
        # What happens between two writes, and how often
        actions = {
            self._split: 8,
            self._rotate: 8,
            self._kill_a_shard_process: 16,
            self._stop_a_shard_process: 10,
            self._kill_the_program: 5,
            self._end_the_program: 2,
            self._sleep: 1,
            self._nothing: 10,
        }
        while self._written < self._records:
            self._write(self._rng.randint(1, _LARGEST_WRITE))
            self._rng.choices(list(actions), list(actions.values()))[0]()
            self._await(lambda: self._behind <= _MOST_BEHIND, "the program stands still")
            time.sleep(self._rng.uniform(0.0, 0.08))
        return self._finish()

    def _nothing(self) -> None:
        pass

    def _write(self, count: int) -> None:
        count = min(count, self._records - self._written)
        keys = self._rng.choice((3, 100, 1000))
        self._sim.bulk(count, keys=keys, remove_every=self._rng.choice((0, 5)))
        self._written += count

    def _split(self) -> None:
        if len(self._sim.open_shards) < _MOST_SHARDS:
            self._sim.split()
            self._done["split"] += 1
        else:
            self._rotate()

    def _rotate(self) -> None:
        every = self._rng.random() < 0.1
        self._sim.rotate("all" if every else None)
        self._done["rotation"] += 1

    def _a_shard_process(self) -> int | None:
        processes = self._program.shard_processes()
        return self._rng.choice(processes) if processes else None

    def _kill_a_shard_process(self) -> None:
        process = self._a_shard_process()
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
                self._done["SIGKILL of a shard process"] += 1

    def _stop_a_shard_process(self) -> None:
        process = self._a_shard_process()
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGSTOP)
            self._done["SIGSTOP of a shard process"] += 1
            self._later(self._rng.choice((0.05, 0.5, 3.5)), process)

    def _later(self, seconds: float, process: int) -> None:
        def go_on() -> None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGCONT)

        timer = threading.Timer(seconds, go_on)
        self._timers.append(timer)
        timer.start()

    def _kill_the_program(self) -> None:
        self._program.end(signal.SIGKILL)
        self._done["SIGKILL of the program"] += 1
        self._program.start()

    def _end_the_program(self) -> None:
        status = self._program.end(signal.SIGTERM)
        if status in (-signal.SIGTERM, _NOTHING_READ) and not self._program.runs[-1].numbers:
            status = 0  # it had not begun, or the service had refused each read until then
        if status:
            raise AssertionError(f"exit status {status} after SIGTERM")
        self._done["SIGTERM of the program"] += 1
        self._program.start()

    def _sleep(self) -> None:
        """A laptop asleep for longer than an iterator lives."""
        since = time.monotonic()
        self._program.signal_group(signal.SIGSTOP)
        self._done["SIGSTOP of all"] += 1
        time.sleep(3.2)
        self._program.signal_group(signal.SIGCONT)
        self._program.runs[-1].sleeps.append((since, time.monotonic()))

    # The end

    def _finish(self) -> list[str]:
        complaints: list[str] = []
        if self._ends_by_itself:
            self._program.end(signal.SIGTERM)
            # It counts the empty pages of one iterator, which lives long enough for that on AWS;
            # and by chance throttled, whatever the rate, it reads ever more slowly.
            self._sim.set_faults(iterator_seconds=900.0, throttle_rate=0.01)
            self._program.start("--no-follow")
            status = self._program.end(0, within=STALL_SECONDS)
        else:
            self._await_quietly(lambda: self._behind <= 0)
            time.sleep(0.3)
            status = self._program.end(signal.SIGTERM)
        if status:
            complaints.append(f"exit status {status} at the end")
        return complaints

    def _await(self, condition: Callable[[], bool], complaint: str) -> None:
        if not self._await_quietly(condition):
            raise AssertionError(complaint)

    def _await_quietly(self, condition: Callable[[], bool]) -> bool:
        """Wait as long as there is progress; say whether the condition came true."""
        seen, deadline = -1, 0.0
        while not condition():
            if len(self._program.seen) != seen:
                seen, deadline = len(self._program.seen), time.monotonic() + STALL_SECONDS
            if time.monotonic() > deadline or self._program.has_ended:
                return condition()
            time.sleep(0.005)
        return True

    def _log(self) -> str:
        return self._program.log.read_text()

    def _complaints_in_log(self) -> list[str]:
        """What a run must never say here: nothing was lost, and nothing broke."""
        return [
            line
            for line in self._log().splitlines()
            if line.startswith(("Traceback", "error:")) or "DATA LOSS" in line
            if not line.startswith("error: nothing could be read: ")  # see `_end_the_program`
        ]


def run_seed(seed: int, records: int, keep: Path | None = None) -> Verdict:
    """One seed in a folder of its own, which stays where `keep` says so."""
    if keep is not None:
        folder = keep / str(seed)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return Chaos(seed, records, folder).run()
    with tempfile.TemporaryDirectory() as temporary:
        return Chaos(seed, records, Path(temporary)).run()


def main(arguments: list[str] | None = None) -> int:
    """Run the seeds, print what was injected and the verdicts; 1 on any violation."""
    parser = argparse.ArgumentParser(prog="scripts/chaos", description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10, metavar="N")
    parser.add_argument("--records", type=int, default=50_000, metavar="M", help="for each seed")
    parser.add_argument("--seed", type=int, help="the first seed; default by chance")
    parser.add_argument(
        "--jobs", type=int, default=3 * (os.cpu_count() or 1), help="seeds at a time"
    )
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep logs and checkpoints there")
    options = parser.parse_args(arguments)
    first = random.SystemRandom().randrange(1_000_000) if options.seed is None else options.seed
    print(f"seeds {first} to {first + options.seeds - 1}", flush=True)
    began = time.monotonic()
    verdicts: list[Verdict] = []
    with concurrent.futures.ProcessPoolExecutor(options.jobs) as pool:
        running = [
            pool.submit(run_seed, seed, options.records, options.keep)
            for seed in range(first, first + options.seeds)
        ]
        for done in running:
            verdict = done.result()
            verdicts.append(verdict)
            print(describe(verdict), flush=True)
    _print_table(verdicts, time.monotonic() - began)
    return 0 if all(verdict.is_good for verdict in verdicts) else 1


def describe(verdict: Verdict) -> str:
    """One line for a seed, and one for each complaint."""
    parts = [
        f"seed {verdict.seed}: {'good' if verdict.is_good else 'BAD'}",
        f"{verdict.written} written in {verdict.seconds:.1f} s",
        f"lost {verdict.lost}",
        f"repeated {verdict.repeated_within}",
        f"out of order {verdict.out_of_order}",
        f"repeated too much {verdict.repeated_too_much}",
        f"across restarts {verdict.repeated} (oldest {verdict.oldest_repeat:.1f} s)",
    ]
    if verdict.unknown:
        parts.append(f"never written {verdict.unknown}")
    return (
        "; ".join(parts)
        + f"  [{verdict.settings}]"
        + "".join(f"\n    {complaint}" for complaint in verdict.complaints[:20])
    )


def _print_table(verdicts: Sequence[Verdict], seconds: float) -> None:
    injected: Counter[str] = Counter()
    for verdict in verdicts:
        injected += verdict.injected
    print(f"\n{'fault':36} injected")
    for fault, count in sorted(injected.items(), key=lambda pair: -pair[1]):
        print(f"{fault:36} {count:8}")
    print(f"\n{'verdict':36} {'records':>8}")
    for name, count in (
        ("written", sum(verdict.written for verdict in verdicts)),
        ("lost", sum(verdict.lost for verdict in verdicts)),
        ("repeated within a run", sum(verdict.repeated_within for verdict in verdicts)),
        ("out of order", sum(verdict.out_of_order for verdict in verdicts)),
        ("repeated by a restart, too much", sum(v.repeated_too_much for v in verdicts)),
        ("repeated by a restart, allowed", sum(verdict.repeated for verdict in verdicts)),
    ):
        print(f"{name:36} {count:8}")
    print(f"\n{len(verdicts)} seeds in {seconds:.0f} s")


if __name__ == "__main__":
    sys.exit(main())
