"""What has to come of the records that were written, and what of it is done."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from tests.simulation.scenario import Scenario
from tests.simulator.model import Shard, World

RETENTION = 24 * 3600.0


class Complaint(NamedTuple):
    """A broken promise: which check saw it, and what it saw."""

    check: str
    text: str


class Run:
    def __init__(self, number: int, began: float) -> None:
        self.number = number
        self.began = began
        self.ended = 0.0
        self.blocked = 0.0  # how long its main thread has waited for the service
        self.how = ""
        self.seen: dict[int, tuple[float, float]] = {}
        """Sequence number → when it was delivered, and how long was waited by then."""
        self.newest: dict[str, int] = {}
        self.passed: set[str] = set()
        self.failures: Counter[int] = Counter()
        self.warned: float = -1.0
        self.rests = False
        """Whether it is said that the stream can't be read, and is tried again ever later."""
        self.standing: dict[str, int] = {}  # how many records there were in each shard as it began
        self.finished: list[str] = []  # the shards that are said to be finished since the last save
        self.saved: list[tuple[float, bool]] = []
        self.has_listed = False
        self.is_excused = False
        """Whether the service began anew meanwhile: what it read since may be anything."""
        self.kept: set[int] | None = None  # what was delivered when somebody kept a token by hand


class Ledger:
    """The records of a table's shards: from which on they are promised, and up to which done."""

    def __init__(
        self,
        scenario: Scenario,
        world: World,
        now: Callable[[], float],
        tell: Callable[[str, str], None],
    ) -> None:
        self.complaints: list[Complaint] = []
        self.runs: list[Run] = []
        self.complained: Callable[[], object] = lambda: None
        """Called with the first complaint, and each that follows."""
        self.checked: Counter[str] = Counter()  # how often each promise was put to the test
        self._scenario = scenario
        self._world = world
        self._table = next(iter(world.tables.values()))
        self._now = now
        self._tell = tell
        self._start = 0.0
        self._has_begun = False
        self._first_stream = 0
        self._old: dict[str, int] = {}
        self._done: dict[str, set[int]] = {}
        self._accounted: dict[str, int] = {}
        self._first: dict[str, int] = {}
        self._skipped: set[str] = set()
        self.former: set[int] = set()
        """The numbers of what there was before the service began anew, …"""
        self.former_shards: set[str] = set()  # … and its shards

    def begin(self, start: float) -> None:
        """The watch begins: where it is from a time on, that is `start` (epoch seconds)."""
        self._start = start
        self._has_begun = False
        # A watch of a table begins with its newest stream.
        self._first_stream = len(self._table.streams) - 1 if self._scenario.of_table else 0
        self._age()
        self._first.clear()
        self._accounted.clear()
        self._old = {shard.id: shard.first for shard in self.shards()}

    def listed(self) -> None:
        """Shards are listed; what the very first listing shows is there as the watch begins."""
        for run in self.runs[-1:]:
            run.has_listed = True
        if not self._has_begun:
            self._has_begun = True
            self._old.update({shard.id: shard.first for shard in self.shards()})

    def granted(self, shard_id: str) -> None:
        """A shard is read from LATEST: what is written from now on has to come."""
        shard = self.shard(shard_id)
        if shard is not None and self._scenario.start == "latest" and shard_id in self._old:
            self._first.setdefault(shard_id, len(shard.numbers))

    def shards(self) -> list[Shard]:
        streams = self._table.streams[self._first_stream :]
        return [shard for stream in streams for shard in stream.shards.values()]

    def shard(self, shard_id: str) -> Shard | None:
        for stream in reversed(self._table.streams):
            if found := stream.shards.get(shard_id):
                return found
        return None

    def first(self, shard: Shard) -> int:
        """The index of the first record that has to come."""
        known = self._first.get(shard.id)
        if known is not None:
            return known
        if shard.id not in self._old:
            self._first[shard.id] = 0
            return 0
        match self._scenario.start:
            case "trim_horizon":
                first = self._old[shard.id]
            case "at_time":
                first = max(self._old[shard.id], bisect_left(shard.times, self._start))
            case _:
                return len(shard.numbers)  # nothing is promised yet
        self._first[shard.id] = first
        return first

    def run_begins(self) -> Run:
        if not any(went_well for run in self.runs for _, went_well in run.saved):
            self.begin(self._start)  # of the run before nothing is left: it begins anew
        else:
            for shard in self.shards():
                self.granted(shard.id)
        run = Run(len(self.runs), self._now())
        run.standing = {shard.id: len(shard.numbers) for shard in self.shards()}
        self.runs.append(run)
        return run

    def run_ends(self, how: str) -> None:
        """The last run is over: done, stopped, killed, or an error's text."""
        run = self.runs[-1]
        run.how, run.ended = how, self._now()

    def accounted(self, shard: Shard) -> int:
        """Up to which index a shard's records are delivered, not wanted, or gone."""
        index = max(self._accounted.get(shard.id, 0), self.first(shard))
        if shard.id in self._old and shard.id not in self._first:
            return index
        done = self._done.get(shard.id, set())
        numbers, keys = shard.numbers, shard.keys
        while index < len(numbers) and (
            numbers[index] in done or self._is_excused(shard, index) or self.unwanted(keys[index])
        ):
            index += 1
        self._accounted[shard.id] = index
        return index

    def _age(self) -> None:
        horizon = self._world.now() - RETENTION
        for stream in self._table.streams:
            stream.expire(horizon)
            if not stream.is_kept(horizon):
                for shard in stream.shards.values():
                    shard.gone = True

    def unwanted(self, key: str) -> bool:
        return self._scenario.filtered and key == "k0"

    @staticmethod
    def _is_excused(shard: Shard, index: int) -> bool:
        return index < shard.first or shard.gone

    def missing(self) -> list[tuple[Shard, int]]:
        """The shards of which something readable is not delivered, and the first such record."""
        missing = []
        self._age()
        for stream in self._table.streams[self._first_stream :]:
            if not self._scenario.of_table and stream is not self._table.streams[0]:
                continue  # it does not follow the table
            for shard in stream.shards.values():
                index = self.accounted(shard)
                if index < len(shard.numbers) and shard.id not in self._skipped:
                    missing.append((shard, index))
        return missing

    def complain(self, check: str, text: str) -> None:
        self._tell("THE JUDGE", f"{check}: {text}")
        self.complained()
        self.complaints.append(Complaint(check, text))
