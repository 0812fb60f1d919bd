"""What the probes of a simulated watch would be answered, held against what goes on."""

from __future__ import annotations

from collections.abc import Mapping

from tests.simulation.scheduler import Life
from tests.simulation.universe import Universe
from watcher.aws.model import ShardKey
from watcher.observability.watch_stats import Display, Health, WatchStats

LATE_SECONDS = 45.0
"""In place of a minute: longer than a read here may hang, shorter than many runs."""
_READY_SECONDS = 20.0
_SAID_SECONDS = 3.0
# As long as the loop waits, it can't look; a wait of 5 s starts all its limits again.
_BUSY_SECONDS = 4.0
_HANDLER = ": a handler "
_HAS_ENDED = "its stream has ended"
_IS_ENDING = "the watch is ending"


class Probes(Display):
    """Complains of a watch that says it is stuck though all goes on, or is never ready."""

    def __init__(
        self,
        universe: Universe,
        life: Life,
        hung: Mapping[ShardKey, float],
        failing: Mapping[ShardKey, object],
    ) -> None:
        """`hung` and `failing` tell for which shards a handler hangs (since when), or fails."""
        self._universe = universe
        self._hung = hung
        self._failing = failing
        self._life = life
        self._began = self._rested_at = self._waited_until = life.monotonic()
        self._waited = 0.0

    def show(self, snapshot: WatchStats) -> None:
        judge = self._universe.judge
        judge.checked["probes"] += 1
        stuck, lines = self._but_hung(snapshot.health)
        if stuck:
            judge.complain("health", "; ".join(stuck))
        if any("can't be read" in line for line in lines):  # refused once: it rests for long
            self._rested_at = self._universe.scheduler.now
        calm = self._universe.calm_since, self._universe.silent_until
        began = max(*calm, self._began, self._rested_at)
        known = ["ending", "can't be read"]
        if self._universe.table.stream.disabled is not None:  # true, until the run has ended
            known.append(_HAS_ENDED)
        unready = [line for line in lines if not any(each in line for each in known)]
        patience = _READY_SECONDS + 3 * self._universe.scenario.slow_listings
        if unready and self._universe.scheduler.now - began > patience:
            judge.complain("health", f"not ready: {'; '.join(unready)}")

    def _but_hung(self, said: Health) -> tuple[list[str], list[str]]:
        """What is stuck, and unready, beside the handlers that do hang; each has to be named."""
        judge, now, stuck = self._universe.judge, self._universe.scheduler.now, list(said.stuck)
        waited, self._waited = self._waited, judge.runs[-1].blocked
        if self._waited - waited > _BUSY_SECONDS:
            self._waited_until = now
        for shard_key, since in self._hung.items():
            is_named = any(f"shard {shard_key.shard_id} " in line for line in stuck)
            judge.checked["handlers that hang"] += is_named
            seconds = now - max(since, self._waited_until)
            is_due = seconds > LATE_SECONDS + _SAID_SECONDS and _IS_ENDING not in said.unready
            if is_due and not is_named:
                judge.complain("health", f"nobody says that a handler hangs, for {now - since} s")
        hung = {shard_key.shard_id for shard_key in (*self._hung, *self._failing)}

        def is_other(line: str) -> bool:
            """Of one that hangs as it is tried again, the trials are named until it is late."""
            return line.split()[1] not in hung or _HANDLER not in line

        return list(filter(is_other, stuck)), list(filter(is_other, said.unready))

    def close(self) -> None:
        """Nothing is open."""
