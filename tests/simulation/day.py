"""A day of a large table: 200 shards that rotate every four hours, for 24 hours.

Nobody waits for a day: the machine stands still for most of each four hours, as one does whose
virtual machine is paused; what is due meanwhile comes late, iterators expire, shards age.
"""

from __future__ import annotations

from collections.abc import Sized
from typing import Any

from tests.simulation.scenario import Scenario
from tests.simulation.scheduler import Trace
from tests.simulation.universe import Universe
from tests.simulation.watch import Watch

SHARDS = 200
_ROTATION = 4 * 3600.0
_ACTIVE_SECONDS = 25.0
_WRITES_A_ROTATION = 400
_DEPTH = 4


class Day(Watch):
    """One run; keeps an eye on everything that the program collects."""

    def __init__(self, universe: Universe, rotations: int) -> None:
        super().__init__(universe)
        self.sizes: dict[str, list[int]] = {}
        """Of each collection inside of the program: how large it was, once a rotation."""
        self._left = rotations
        self._write()
        self._scheduler.after(_ACTIVE_SECONDS, self._next_hours)

    def _write(self) -> None:
        for _ in range(_WRITES_A_ROTATION):
            self._universe.table.write(f"k{self._rng.randrange(self._scenario.keys)}")

    def _next_hours(self) -> None:
        if self._manager is not None:
            for name, size in collections_in(self._manager):
                self.sizes.setdefault(name, []).append(size)
        self._scheduler.stand_still(_ROTATION - _ACTIVE_SECONDS)
        stream = self._universe.table.stream
        for shard in stream.open_shards:
            stream.split(shard.id, 1)
        self._write()
        self._left -= 1
        if self._left:
            self._scheduler.after(_ACTIVE_SECONDS, self._next_hours)


def play_day(days: int = 1, trace: Trace | None = None) -> Day:
    """A whole day, or more of them."""
    hours = 24 * days
    scenario = Scenario(0, "processes", shards=SHARDS, keys=3 * SHARDS, poll_max=10.0)
    scenario.habits = {"latency": 0.002}
    scenario.writes = scenario.trouble = hours * 3600.0 + _ACTIVE_SECONDS
    scenario.burst = 3
    day = Day(Universe(scenario, trace), round(hours * 3600 / _ROTATION))
    day.play()
    return day


def collections_in(thing: Any, name: str = "", depth: int = _DEPTH) -> list[tuple[str, int]]:
    """What the program's objects collect, by the path to it, and how much that is."""
    found = []
    for attribute, value in getattr(thing, "__dict__", {}).items():
        path = f"{name}.{attribute}"
        if type(value).__module__.startswith("watcher.") and depth:
            found += collections_in(value, path, depth - 1)
        elif isinstance(value, Sized) and not isinstance(value, str | bytes | tuple):
            found.append((path, len(value)))
            if isinstance(value, dict):
                for each in value.values():
                    found += collections_in(each, f"{path}[]", depth)
    return found
