"""What goes wrong during a soak, by chance: shards, processes, the network, whole programs."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable

from tests.simulator import Faults, Simulator
from tests.soak.program import Watch
from tests.soak.watches import Pair
from tests.support.processes import children

_SHARDS = 8
_PAUSE_SECONDS = 3.0  # after somebody else has taken over
_A_WHILE_SECONDS = 4.0
_STREAMS = ("ListStreams", "DescribeStream", "GetShardIterator", "GetRecords")


def faults_of(rng: random.Random) -> Faults:
    """The faults of one seed: all at once, some habits of the service by chance."""
    return Faults(
        operations=_STREAMS,
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


class Disturbances:
    """Does one thing after another; each has ended when the next begins."""

    def __init__(self, rng: random.Random, sim: Simulator, resident: Watch, pair: Pair) -> None:
        self.done: Counter[str] = Counter()
        self._rng = rng
        self._sim = sim
        self._resident = resident
        self._pair = pair
        # How often each is chosen; a run too short for chance has one of each, quick ones first.
        often: dict[str, tuple[int, Callable[[], object]]] = {
            "rotation of a shard": (10, sim.rotate),
            "takeover after SIGTERM": (2, pair.end_active),
            "SIGKILL of a shard process": (6, self._kill_a_worker),
            "4,000 changes at once": (3, lambda: pair.writer.write(4000)),
            "rotation of all shards": (2, lambda: sim.rotate("all")),
            "SIGSTOP of a shard process": (4, self._stop_a_worker),
            "no network for a while": (2, lambda: self._faulty(reset_rate=1.0)),
            "takeover after SIGKILL": (2, pair.kill_active),
            "takeover after SIGSTOP": (2, lambda: pair.pause_active(_PAUSE_SECONDS)),
            "takeover after a partition": (2, pair.cut_off_active),
            "throttled for a while": (2, lambda: self._faulty(throttle_rate=0.9)),
        }
        self.each = [self._counted(name, do) for name, (_, do) in often.items()]
        self._weights = [weight for weight, _ in often.values()]

    def _counted(self, name: str, do: Callable[[], object]) -> Callable[[], None]:
        def counted() -> None:
            do()
            self.done[name] += 1

        return counted

    def one(self) -> None:
        """The next one. Raises AssertionError where a watch does not do what it should."""
        self._rng.choices(self.each, self._weights)[0]()

    def split_all(self) -> None:
        """Until there are as many shards as there will be."""
        while len(self._sim.open_shards) < _SHARDS:
            self._sim.split()

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
        watch = self._rng.choice((self._resident, self._pair.active))
        # Not the one that serves the metrics: that is not replaced.
        return self._rng.choice(children(watch.process.pid)[1:])
