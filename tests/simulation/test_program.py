"""What the judge is told of a run."""

from __future__ import annotations

import pytest

from tests.simulation.scenario import Scenario
from tests.simulation.scheduler import Killed, Life
from tests.simulation.universe import Universe
from tests.simulation.watch import Watch


def test_a_wait_that_a_kill_cuts_short_counts_as_waiting_for_the_service() -> None:
    universe = Universe(Scenario(0, "processes", habits={"latency": 9.0}), None)
    run, life = universe.judge.run_begins(), Life(universe.scheduler)
    client = Watch(universe)._client_of(universe, life)

    def kill() -> None:
        life.killed = True

    universe.scheduler.after(4.0, kill)
    with pytest.raises(Killed):
        client.list_shards(universe.table.stream.arn)
    assert run.blocked == universe.scheduler.now == 9.0
