"""Writes, disturbs and samples for as long as it is told, and then judges."""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.simulator import Simulator
from tests.soak.account import FORBIDDEN
from tests.soak.disturbances import Disturbances, faults_of
from tests.soak.program import Watch
from tests.soak.samples import Growth, Sample, growth, sample
from tests.soak.watches import Group, Pair, Writer

_TICK_SECONDS = 0.1
_MOST_SAMPLES = 1500
_MINUTE = 60.0
# From one disturbance to the next, at most; too short a run has one of each in place of chance.
_PEACE_SECONDS = 12.0
_SHORT_SECONDS = 120.0
_AT_LEAST = 3
_STALL_SECONDS = 60.0


@dataclass
class Outcome:
    """What became of a soak."""

    written: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    """What must not be, by what it is; all 0 is good."""
    allowed: int = 0
    """Changes that a run delivered again after a kill, as it may."""
    done: dict[str, int] = field(default_factory=dict)
    takeovers: dict[str, list[float]] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)
    growths: list[Growth] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        grown = any(each.too_much for each in self.growths)
        return not (any(self.faults.values()) or grown or self.complaints)


class Soak:
    """One soak; its logs and samples are left in a folder."""

    def __init__(
        self, seconds: float, rate: int, seed: int, folder: Path, say: Callable[[str], object]
    ) -> None:
        self._seconds = seconds
        self._rate = rate
        self._rng = random.Random(seed)
        self._folder = folder
        self._say = say
        self._began = time.monotonic()
        self.outcome = Outcome()

    def run(self) -> Outcome:
        """The whole of it."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for left in (*self._folder.glob("*.log"), *self._folder.glob("alone.json*")):
            left.unlink()
        with ExitStack() as stack:
            sim = stack.enter_context(Simulator(shards=4, faults=faults_of(self._rng)))
            writer = Writer(sim)
            checkpoint = str(self._folder / "alone.json")
            alone = Group(sim, self._folder, "alone", checkpoint, writer)
            stack.callback(alone.clean_up)
            pair = Pair(sim, self._folder, writer)
            stack.callback(pair.clean_up)
            try:
                self._go_through(writer, alone, pair, sim)
            except AssertionError as error:
                self.outcome.complaints.append(str(error))
            self._judge(writer, alone, pair)
        return self.outcome

    def _go_through(self, writer: Writer, alone: Group, pair: Pair, sim: Simulator) -> None:
        watch = alone.start()
        disturbances = Disturbances(self._rng, sim, watch, pair)
        self.outcome.done = disturbances.done
        with ExitStack() as beside:
            some = max(1, round(self._rate * _TICK_SECONDS))
            beside.enter_context(_again(_TICK_SECONDS, lambda: writer.write(some)))
            pair.begin()
            disturbances.split_all()
            every = max(1.0, self._seconds / _MOST_SAMPLES)
            beside.enter_context(_again(every, lambda: self._sample(watch)))
            beside.enter_context(_again(_MINUTE, lambda: self._tell(alone, pair)))
            with contextlib.suppress(KeyboardInterrupt):  # what has been so far is judged
                self._disturb(disturbances, watch)
        self._await_the_rest(alone, pair)
        pair.end_standby()
        for each in (watch, pair.active):
            status = each.end()
            assert status == 0, f"status {status} at the end"

    def _disturb(self, disturbances: Disturbances, watch: Watch) -> None:
        first = disturbances.each if self._seconds <= _SHORT_SECONDS else []
        for done, one in enumerate(itertools.chain(first, itertools.repeat(disturbances.one))):
            if done >= _AT_LEAST and self._hours * 3600 > self._seconds:
                return
            time.sleep(self._rng.uniform(0.0, min(_PEACE_SECONDS, self._seconds / 10)))
            one()
            assert watch.process.poll() is None, "the one that is never ended has ended"

    @property
    def _hours(self) -> float:
        return (time.monotonic() - self._began) / 3600

    def _sample(self, watch: Watch) -> None:
        with contextlib.suppress(OSError):  # it has ended: that is said elsewhere
            now = sample(watch.process.pid, self._hours)
            self.outcome.samples.append(now)

    def _tell(self, alone: Group, pair: Pair) -> None:
        if not self.outcome.samples:
            return
        now = self.outcome.samples[-1]
        self._say(
            f"{now.hours * 60:6.1f} min: {alone.writer.written.total():,} written, "
            f"{sum(self.outcome.done.values())} disturbances, "
            f"{sum(_faults(alone, pair).values())} faults; {now.processes:.1f} MB"
        )

    def _await_the_rest(self, *groups: Group) -> None:
        """Wait as long as there is progress."""
        behind, until = -1, 0.0
        while left := sum(each.behind for each in groups):
            if left != behind:
                behind, until = left, time.monotonic() + _STALL_SECONDS
            assert time.monotonic() < until, f"{left} changes are not delivered"
            time.sleep(0.05)

    def _judge(self, writer: Writer, alone: Group, pair: Pair) -> None:
        outcome = self.outcome
        outcome.written = writer.written.total()
        lost = sum(each.account.lost(writer.written) for each in (alone, pair))
        outcome.faults = {"lost": lost, **_faults(alone, pair)}
        outcome.allowed = pair.account.repeated
        outcome.takeovers = pair.takeovers
        outcome.growths = growth(outcome.samples)
        outcome.complaints += alone.complaints() + pair.complaints()


def _faults(alone: Group, pair: Pair) -> dict[str, int]:
    """What must not be, so far."""
    found = dict.fromkeys(FORBIDDEN, 0) | alone.account.faults + pair.account.faults
    return {**found, "takeovers that took too long": len(pair.too_slow)}


@contextmanager
def _again(seconds: float, do: Callable[[], object]) -> Iterator[None]:
    """Do it again and again meanwhile, in a thread; what it raises is raised at the end."""
    over, raised = threading.Event(), list[Exception]()

    def run() -> None:
        due = time.monotonic()
        try:
            while not over.is_set():
                do()
                due = max(due + seconds, time.monotonic() - seconds)
                over.wait(max(0.0, due - time.monotonic()))
        except Exception as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    if raised:
        raise raised[0]
