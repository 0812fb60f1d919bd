"""`scripts/kills`: `archive`, `mirror`, a watch on Spark, killed all through their lives.

The real command runs on a simulator that is written to all the time, whose shards split and rotate
and whose days pass. Its processes (driver, JVM, Python workers) get SIGKILL: at moments spread
over its life, and in the middle of what it does to its folder; and a single one of its processes,
after which it goes on, or ends with an error. Meanwhile others read the folder: no row may be there
twice, none may go, and no reader may fail. In the end, after a run up to now, it
has to hold all that was written, as each of the readers sees it.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.chaos import ROOT
from tests.simulator import Simulator
from tests.simulator.control import RemoteSimulator
from tests.soak.killed import JOBS, Killed, Rows
from tests.soak.samples import memory_of
from tests.spark import home

# Its JVM lives for seconds, as those of tests do.
_SETTINGS = {"PYTHONPATH": str(ROOT), "SPARK_SUBMIT_OPTS": home.submit_options()}
_KEYS = 200
_REMOVE_EVERY = 9
_TICK_SECONDS = 0.1
_POLL_SECONDS = 0.3
_START_SECONDS = 120.0
_LONGEST_SECONDS = 25.0
_GOES_ON_SECONDS = 10.0
_ONE_PROCESS = "one process"
_MOMENT_SECONDS = 120.0
_LAST_SECONDS = 300.0
_DAY_SECONDS = 16.0
# Several in a day, so that nothing unread, not even an empty shard, is as old as the retention.
_STEP_SECONDS = 5 * 3600
_MOST_SHARDS = 6
_AGAIN = 5
_SAMPLE_SECONDS = 5.0


Usage = Mapping[str, Mapping[str, int]]
"""What processes take, by their kind."""


class Writer:
    """Changes items in turn, at a rate; splits and rotates shards, and lets days pass."""

    def __init__(self, sim: RemoteSimulator, rate: int, seed: int) -> None:
        self._sim = sim
        self._some = max(1, round(rate * _TICK_SECONDS))
        self._rng = random.Random(seed)
        self._next = 0
        self._before_step: set[tuple[str]] = set()
        self._lock = threading.Lock()
        self.steps = 0

    def write(self) -> None:
        """What a tick brings."""
        with self._lock:
            first, self._next = self._next, self._next + self._some
            self._sim.bulk(self._some, keys=_KEYS, remove_every=_REMOVE_EVERY, begin=first)
            chance = self._rng.random()
            if chance < 0.005:
                self._sim.rotate("all")
            elif chance < 0.015 and len(self._sim.open_shards) < _MOST_SHARDS:
                self._sim.split()

    def step(self, seen: set[tuple[Any, ...]]) -> None:
        """Five hours pass, if all that was written before the last five is seen."""
        with self._lock:
            if seen and self._before_step <= seen:
                self._before_step = {(each.sequence_number,) for each in self._sim.records}
                self._sim.advance(_STEP_SECONDS)
                self.steps += 1


class Reader:
    """Others, who read the folder all the time; what they complain of."""

    def __init__(self, folder: Killed) -> None:
        self._folder = folder
        self._before: dict[str, set[tuple[Any, ...]]] = {}
        self.seen: set[tuple[Any, ...]] = set()
        self.polls: Counter[str] = Counter()
        self.again: Counter[str] = Counter()
        self.complaints: list[str] = []

    def poll(self) -> None:
        """Each of them, once."""
        for name, read in self._folder.readers().items():
            if (rows := self._read(name, read)) is None:
                continue
            self.polls[name] += 1
            found = set(rows)
            if len(found) < len(rows):
                self.complaints.append(f"{name} saw {len(rows) - len(found)} rows twice")
            if self._folder.has_days and (gone := self._before.get(name, set()) - found):
                self.complaints.append(f"{name} saw {len(gone)} rows, and then no more")
            self._before[name] = self.seen = found

    def _read(self, name: str, read: Callable[[tuple[str, ...]], Rows]) -> Rows | None:
        """None where it is not there yet. A file that is gone is read again, as the docs say."""
        for _ in range(_AGAIN):
            if not self._folder.is_there():
                return None
            try:
                return read(self._folder.ids)
            except Exception as error:  # of any library: what they say is told
                if not self._folder.is_gone(error):
                    self.complaints.append(f"{name} failed: {error!r:.300}")
                    return None
                self.again[name] += 1
        self.complaints.append(f"{name} failed {_AGAIN} times in a row")
        return None


class Kills:
    """One folder, and the job that is killed."""

    def __init__(self, folder: Killed, sim: RemoteSimulator, seed: int, log: Path) -> None:
        self._folder = folder
        self._sim = sim
        self._rng = random.Random(seed)
        self._log = log

    def kill(self, aim: str) -> str:
        """Start it, and kill it at that moment; what was going on."""
        with self._started(once=False) as job:
            began = time.monotonic()
            if aim == _ONE_PROCESS:
                time.sleep(self._rng.uniform(0.0, _LONGEST_SECONDS))
                victim = self._rng.choice(sorted(processes_of(job.pid).items()))
                return f"{self._kill_one(job, *victim)}; {self._folder.state()}"
            if aim == "any moment":
                time.sleep(self._rng.uniform(0.0, _LONGEST_SECONDS))
            else:
                self._await(self._folder.moments()[aim], self._rng.randrange(1, 6), job)
                time.sleep(self._rng.choice([0.0, self._rng.uniform(0.0, 0.05)]))
            assert job.poll() is None, f"ended by itself:\n{self._said()}"
            after = time.monotonic() - began
        return f"{aim}, {after:.1f} s after it began; {self._folder.state()}"

    def _kill_one(self, job: subprocess.Popen[bytes], victim: int, name: str) -> str:
        """It goes on without this process, or ends and says so."""
        size = self._log.stat().st_size
        with suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
        if victim == job.pid:
            return f"{name} was killed"
        try:
            status = job.wait(_GOES_ON_SECONDS)
        except subprocess.TimeoutExpired:
            return f"{name} was killed, and it goes on"
        told = self._log.read_text()[size:].strip().splitlines()
        assert status > 0 and told, f"{name} was killed: status {status}\n{self._said()}"
        return f"{name} was killed, and it ends with {status}: {told[-1]:.150}"

    def leave(self, minutes: float) -> list[Usage]:
        """Leave it alone for so long; what its processes took meanwhile."""
        found = []
        with self._started(once=False) as job:
            until = time.monotonic() + 60 * minutes
            while (left := until - time.monotonic()) > 0:
                time.sleep(min(left, _SAMPLE_SECONDS))
                assert job.poll() is None, f"ended by itself:\n{self._said()}"
                found.append(usage_of(job.pid))
        return found

    def finish(self) -> None:
        """Run it up to now."""
        with self._started(once=True) as job:
            status = job.wait(_LAST_SECONDS)
        assert status == 0, f"status {status}:\n{self._said()}"

    def _await(self, mark: Callable[[], object], times: int, job: subprocess.Popen[bytes]) -> None:
        """Until the mark has changed so often."""
        before, until = mark(), time.monotonic() + _MOMENT_SECONDS
        while times and time.monotonic() < until and job.poll() is None:
            if (now := mark()) != before:
                before, times = now, times - 1
            else:
                time.sleep(0.001)

    @contextmanager
    def _started(self, *, once: bool) -> Iterator[subprocess.Popen[bytes]]:
        """The command, once it has begun; nothing of it is left afterwards."""
        size = self._log.stat().st_size if self._log.exists() else 0
        words = self._folder.command(self._sim.stream_arn, once=once)
        with open(self._log, "ab") as log:
            job = subprocess.Popen(
                [sys.executable, "-m", "watcher", *words],
                env={**os.environ, **self._sim.environment, **_SETTINGS},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            until = time.monotonic() + _START_SECONDS
            while self._folder.begins not in self._log.read_text()[size:]:
                assert job.poll() is None and time.monotonic() < until, self._said()
                time.sleep(0.05)
            yield job
        finally:
            with suppress(ProcessLookupError):
                os.killpg(job.pid, signal.SIGKILL)
            while left := processes_of(job.pid):
                for victim in left:
                    with suppress(ProcessLookupError):
                        os.kill(victim, signal.SIGKILL)
            job.wait()

    def _said(self) -> str:
        return self._log.read_text()[-3000:]


def usage_of(session: int) -> Usage:
    """What the processes of a session take now, by what each runs."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for pid, name in processes_of(session).items():
        kind = "the JVM" if name.startswith("java") else "Python"
        place = Path(f"/proc/{pid}")
        with suppress(OSError):
            ends = [os.readlink(each) for each in (place / "fd").iterdir()]
            took = {
                "processes": 1,
                "MB": round(memory_of(pid)),
                "threads": len(list((place / "task").iterdir())),
                "sockets": sum(each.startswith("socket:") for each in ends),
                "files": len(ends),
            }
            found[kind] += Counter(took)
    return found


def print_growth(samples: list[Usage]) -> None:
    """Each figure's median in the quarters of the time, the first minutes left out."""
    steady = samples[len(samples) // 8 :]
    size = max(1, len(steady) // 4)
    parts = [steady[at : at + size] for at in range(0, 4 * size, size)]
    for kind in samples[-1]:
        for name in samples[-1][kind]:
            medians = [statistics.median(each[kind][name] for each in part) for part in parts]
            print(f"{kind}, {name}: {' '.join(f'{each:g}' for each in medians)}", flush=True)


def processes_of(session: int) -> dict[int, str]:
    """The processes of a session, and what each runs: Spark's workers are a group of their own."""
    found = {}
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            state, _, _, of, *_ = (place / "stat").read_text().rpartition(")")[2].split()
            if int(of) == session and state != "Z":
                words = (place / "cmdline").read_text().split("\0")
                found[int(place.name)] = " ".join(Path(each).name for each in words[:4])[:60]
    return found


@contextmanager
def again(seconds: float, do: Callable[[], object]) -> Iterator[None]:
    """Do it again and again beside, with so much time between; what it raises ends the program."""
    done = threading.Event()
    failed: list[BaseException] = []

    def loop() -> None:
        try:
            while not done.wait(seconds):
                do()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
    if failed:
        raise failed[0]


def run(
    folder: Killed, kills: int, rate: int, seed: int, place: Path, minutes: float = 0.0
) -> list[str]:
    """All of it, told as it goes; what is wrong."""
    with Simulator.spawn(shards=2, seed=seed) as sim:
        writer, reader = Writer(sim, rate, seed), Reader(folder)
        folder.prepare(sim)
        job = Kills(folder, sim, seed, place / "job.log")
        aims = [*folder.moments(), "any moment", _ONE_PROCESS]
        with again(_POLL_SECONDS, reader.poll):
            with ExitStack() as beside:
                beside.enter_context(again(_TICK_SECONDS, writer.write))
                if folder.has_days:
                    step = again(_DAY_SECONDS / 2, lambda: writer.step(reader.seen))
                    beside.enter_context(step)
                for number in range(kills):
                    told = job.kill(aims[number % len(aims)])
                    print(f"kill {number + 1:2}: {told}; {len(reader.seen)} rows", flush=True)
                if minutes:
                    print_growth(job.leave(minutes))
            sim.advance(2)
            job.finish()
        wrong = folder.compare(sim, _REMOVE_EVERY)
        written = len(sim.records)
    print(f"{written} changes written, {writer.steps} times five hours, {folder.state()}")
    polls = ", ".join(f"{name} {count}" for name, count in reader.polls.items())
    print(f"read meanwhile: {polls}; files gone, read again: {reader.again.total()}")
    return wrong + reader.complaints


def main(arguments: list[str] | None = None) -> int:
    """Run it; 1 where anything is wrong."""
    parser = argparse.ArgumentParser(prog="scripts/kills", description=__doc__)
    parser.add_argument("job", choices=[*JOBS])
    parser.add_argument("--kills", type=int, default=14, metavar="N", help="default 14")
    parser.add_argument(
        "--then-leave", type=float, default=0.0, metavar="MINUTES", help="and see whether it grows"
    )
    parser.add_argument("--rate", type=int, default=300, metavar="N", help="changes a second")
    parser.add_argument("--seed", type=int, help="default by chance")
    options = parser.parse_args(arguments)
    seed = random.SystemRandom().randrange(1_000_000) if options.seed is None else options.seed
    # So that nothing stays behind that it has started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    print(f"{options.job}, seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="kills-") as name:
        place = Path(name)
        folder = JOBS[options.job](place)
        minutes = options.then_leave
        wrong = run(folder, options.kills, options.rate, seed, place, minutes)
    for each in wrong[:20]:
        print(f"BAD: {each}")
    print("nothing is wrong" if not wrong else f"{len(wrong)} things are wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
