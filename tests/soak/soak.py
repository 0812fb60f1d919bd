"""Writes, disturbs and samples for as long as it is told, and then judges."""

import contextlib
import itertools
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.simulator import Faults, Simulator
from tests.soak.samples import Growth, Sample, growth, sample
from tests.soak.watch import Watch
from tests.support.eventually import eventually
from tests.support.processes import children

KEYS = 500
_SHARDS = 8
_TICK_SECONDS = 0.1
_MOST_SAMPLES = 1500
_A_WHILE_SECONDS = 4.0
# From one disturbance to the next, at most; too short a run has one of each in place of chance.
_PEACE_SECONDS = 12.0
_SHORT_SECONDS = 120.0
_STALL_SECONDS = 60.0


def faults_of(rng: random.Random) -> Faults:
    """The faults of one seed: all at once, some habits of the service by chance."""
    return Faults(
        operations=("ListStreams", "DescribeStream", "GetShardIterator", "GetRecords"),
        throttle_rate=0.03,
        error_rate=0.02,
        reset_rate=0.01,
        truncate_rate=0.002,
        invalid_json_rate=0.002,
        empty_page_rate=0.10,
        short_page_rate=0.10,
        last_page_empty=rng.random() < 0.3,
        listing_lag=rng.choice((0.0, 1.0, 2.5)),
        closing_lag=rng.choice((0.0, 2.5, float("inf"))),
        lag_jitter=True,
        children_first=rng.random() < 0.5,
        child_filter=rng.random() < 0.5,
        describe_page=rng.choice((10, 100)),
        at_timestamp=rng.random() < 0.5,
        iterator_seconds=60.0,
        granularity=0.0,
        # A day of AWS's in ten minutes: shards are trimmed and go, positions stay.
        retention=600.0,
    )


@dataclass
class Outcome:
    """What became of a soak."""

    written: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    """What must not be, by what it is; all 0 is good."""
    done: Counter[str] = field(default_factory=Counter)
    samples: list[Sample] = field(default_factory=list)
    growths: list[Growth] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        grown = any(each.too_much for each in self.growths)
        return not (any(self.faults.values()) or grown or self.complaints)


class Soak:
    """One soak; its log and its positions are left in a folder."""

    def __init__(self, seconds: float, rate: int, seed: int, folder: Path) -> None:
        self._seconds = seconds
        self._some = max(1, round(rate * _TICK_SECONDS))
        self._rng = random.Random(seed)
        self._folder = folder
        self._began = time.monotonic()
        self._written: Counter[str] = Counter()
        self._writing = threading.Lock()
        self.outcome = Outcome()
        self._sim: Simulator
        self._watch: Watch

    def run(self) -> Outcome:
        """The whole of it."""
        self._folder.mkdir(parents=True, exist_ok=True)
        checkpoint = self._folder / "alone.json"
        checkpoint.unlink(missing_ok=True)
        words = ["orders", "--print-json", "--from", "trim-horizon", "--poll-max", "0.5"]
        words += ["--checkpoint", str(checkpoint), "--metrics-port", "0"]
        with Simulator(shards=4, faults=faults_of(self._rng)) as self._sim:
            self._watch = Watch(words, self._sim.environment, self._folder / "alone.log")
            try:
                self._go_through()
            except AssertionError as error:
                self.outcome.complaints.append(str(error))
            finally:
                self._watch.clean_up()
        self._judge()
        return self.outcome

    def _go_through(self) -> None:
        with ExitStack() as beside:
            beside.enter_context(_again(_TICK_SECONDS, lambda: self._write(self._some)))
            eventually(lambda: self._watch.account.last)
            while len(self._sim.open_shards) < _SHARDS:
                self._sim.split()
            every = max(1.0, self._seconds / _MOST_SAMPLES)
            beside.enter_context(_again(every, self._sample))
            with contextlib.suppress(KeyboardInterrupt):  # what has been so far is judged
                self._disturb()
        self._await_the_rest()
        status = self._watch.end()
        assert status == 0, f"status {status} at the end"

    def _write(self, count: int) -> None:
        """Change the next so many items; every fifth change of one removes it."""
        with self._writing:
            first = self._written.total()
            self._sim.bulk(count, keys=KEYS, remove_every=5, begin=first)
            self._written.update(f"k{index % KEYS}" for index in range(first, first + count))

    @property
    def _hours(self) -> float:
        return (time.monotonic() - self._began) / 3600

    def _sample(self) -> None:
        with contextlib.suppress(OSError):  # it has ended: that is said elsewhere
            self.outcome.samples.append(sample(self._watch.process.pid, self._hours))

    # What goes wrong: each has ended when the next begins.

    def _disturb(self) -> None:
        often: dict[str, tuple[int, Callable[[], object]]] = {
            "rotation of a shard": (10, self._sim.rotate),
            "SIGKILL of a shard process": (6, self._kill_a_worker),
            "4,000 changes at once": (3, lambda: self._write(4000)),
            "rotation of all shards": (2, lambda: self._sim.rotate("all")),
            "SIGSTOP of a shard process": (4, self._stop_a_worker),
            "no network for a while": (2, lambda: self._faulty(reset_rate=1.0)),
            "throttled for a while": (2, lambda: self._faulty(throttle_rate=0.9)),
        }
        weights = [weight for weight, _ in often.values()]
        first = often if self._seconds <= _SHORT_SECONDS else {}
        chosen = (self._rng.choices([*often], weights)[0] for _ in itertools.count())
        for name in itertools.chain(first, chosen):
            if self._hours * 3600 > self._seconds and self.outcome.done.keys() >= first.keys():
                return
            time.sleep(self._rng.uniform(0.0, min(_PEACE_SECONDS, self._seconds / 10)))
            often[name][1]()
            self.outcome.done[name] += 1
            assert self._watch.process.poll() is None, "the watch has ended"

    def _faulty(self, **faults: float) -> None:
        with self._sim.faulty(**faults):
            time.sleep(_A_WHILE_SECONDS)

    def _kill_a_worker(self) -> None:
        with contextlib.suppress(ProcessLookupError, IndexError):
            os.kill(self._a_worker(), signal.SIGKILL)

    def _stop_a_worker(self) -> None:
        with contextlib.suppress(ProcessLookupError, IndexError):
            worker = self._a_worker()
            os.kill(worker, signal.SIGSTOP)
            time.sleep(self._rng.choice((0.1, 0.5, 3.5)))
            os.kill(worker, signal.SIGCONT)

    def _a_worker(self) -> int:
        # Not the one that serves the metrics: that is not replaced.
        return self._rng.choice(children(self._watch.process.pid)[1:])

    # The end

    def _await_the_rest(self) -> None:
        """Wait as long as there is progress."""
        behind, until = -1, 0.0
        while left := self._written.total() - self._watch.account.last.total():
            if left != behind:
                behind, until = left, time.monotonic() + _STALL_SECONDS
            assert time.monotonic() < until, f"{left} changes are not delivered"
            time.sleep(0.05)

    def _judge(self) -> None:
        account, outcome = self._watch.account, self.outcome
        outcome.written = self._written.total()
        outcome.faults = {"lost": (self._written - account.last).total(), **account.faults}
        outcome.growths = growth(outcome.samples)
        outcome.complaints += self._watch.complaints()


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
