"""What the probes of a simulated watch would be answered, held against what goes on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.simulation.scheduler import Life
from tests.simulation.universe import Universe
from watcher.engine import health
from watcher.engine.figures import Display, Snapshot

LATE_SECONDS = 45.0
"""In place of a minute: longer than a read here may hang, shorter than many runs."""
_READY_SECONDS = 20.0


@contextmanager
def sooner() -> Iterator[None]:
    """In here what is due is late sooner."""
    before, health.LATE_SECONDS = health.LATE_SECONDS, LATE_SECONDS
    try:
        yield
    finally:
        health.LATE_SECONDS = before


class Probes(Display):
    """Complains of a watch that says it is stuck though all goes on, or is never ready."""

    def __init__(self, universe: Universe, life: Life) -> None:
        self._universe = universe
        self._life = life
        self._began = self._rested_at = life.monotonic()

    def show(self, snapshot: Snapshot) -> None:
        """What is said now."""
        judge = self._universe.judge
        judge.checked["probes"] += 1
        if snapshot.health.stuck:
            judge.complain("health", "; ".join(snapshot.health.stuck))
        lines = snapshot.health.unready
        if any("it can't be read" in line for line in lines):  # refused once: it rests for long
            self._rested_at = self._universe.scheduler.now
        calm = self._universe.calm_since, self._universe.silent_until
        began = max(*calm, self._began, self._rested_at)
        unready = [
            line for line in lines if "ending" not in line and "it can't be read" not in line
        ]
        if unready and self._universe.scheduler.now - began > _READY_SECONDS:
            judge.complain("health", f"not ready: {'; '.join(unready)}")

    def close(self) -> None:
        """Nothing is open."""
