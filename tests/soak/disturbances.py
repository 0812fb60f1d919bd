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
# A lease lasts 6 s; whoever stands by looks once a second.
_PAUSE_SECONDS = 9.0
_CUT_SECONDS = 4.0
_THROTTLED_SECONDS = 5.0
_DELETED_SECONDS = 5.0
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
        often: dict[Callable[[], object], int] = {
            self._rotate: 10,
            self._end: 2,
            self._kill_a_worker: 6,
            self._burst: 3,
            self._rotate_all: 2,
            self._stop_a_worker: 4,
            self._cut_the_network: 2,
            self._kill: 2,
            self._pause: 2,
            self._replace_the_standby: 1,
            self._cut_off: 2,
            self._throttle: 2,
            self._make_the_table_again: 1,
        }
        self._actions, self._weights = list(often), list(often.values())

    def one(self) -> None:
        """The next one. Raises AssertionError where a watch does not do what it should."""
        self._rng.choices(self._actions, self._weights)[0]()

    @property
    def each(self) -> list[Callable[[], object]]:
        """One of each kind, for a run that is too short for chance; the quick ones first."""
        return self._actions

    # Shards

    def _rotate(self) -> None:
        self._sim.rotate()
        self.done["rotation of a shard"] += 1

    def _rotate_all(self) -> None:
        self._sim.rotate("all")
        self.done["rotation of all shards"] += 1

    def split_all(self) -> None:
        """Until there are as many shards as there will be."""
        while len(self._sim.open_shards) < _SHARDS:
            self._sim.split()
            self.done["split"] += 1

    def _make_the_table_again(self) -> None:
        with self._pair.writer.paused():
            self._sim.delete_table()
            time.sleep(self._rng.uniform(0.0, _DELETED_SECONDS))
            self._sim.create_table(_SHARDS // 2)
        self._pair.replace_ended_standby()
        self.split_all()
        self.done["table deleted, and made again"] += 1

    def _burst(self) -> None:
        self._pair.writer.write(4000)
        self.done["4,000 changes at once"] += 1

    def _cut_the_network(self) -> None:
        with self._sim.faulty(reset_rate=1.0):
            time.sleep(_CUT_SECONDS)
        self.done[f"{_CUT_SECONDS:g} s without a network"] += 1

    def _throttle(self) -> None:
        with self._sim.faulty(throttle_rate=0.9):
            time.sleep(_THROTTLED_SECONDS)
        self.done[f"{_THROTTLED_SECONDS:g} s of throttling"] += 1

    # Shards' processes

    def _a_worker(self) -> int | None:
        watch = self._rng.choice((self._resident, self._pair.active))
        # Not the one that serves the metrics: that is not replaced.
        workers = children(watch.process.pid)[1:]
        return self._rng.choice(workers) if workers else None

    def _kill_a_worker(self) -> None:
        if (worker := self._a_worker()) is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
                self.done["SIGKILL of a shard process"] += 1

    def _stop_a_worker(self) -> None:
        if (worker := self._a_worker()) is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker, signal.SIGSTOP)
                time.sleep(self._rng.choice((0.1, 0.5, 3.5)))
                self.done["SIGSTOP of a shard process"] += 1
                os.kill(worker, signal.SIGCONT)

    # The pair

    def _end(self) -> None:
        self._pair.end_active()
        self.done["takeover after SIGTERM"] += 1

    def _kill(self) -> None:
        self._pair.kill_active()
        self.done["takeover after SIGKILL"] += 1

    def _pause(self) -> None:
        self._pair.pause_active(_PAUSE_SECONDS)
        self.done["takeover after SIGSTOP"] += 1

    def _cut_off(self) -> None:
        self._pair.cut_off_active()
        self.done["takeover after a partition"] += 1

    def _replace_the_standby(self) -> None:
        self._pair.replace_standby()
        self.done["standby replaced"] += 1
