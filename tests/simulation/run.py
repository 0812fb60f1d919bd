"""One seed, from its scenario to its verdict."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple
from unittest import mock

from tests.simulation.ledger import Complaint
from tests.simulation.program import Program
from tests.simulation.pull import Pull
from tests.simulation.scenario import Scenario, draw
from tests.simulation.scheduler import Trace
from tests.simulation.universe import Universe
from tests.simulation.watch import Watch
from watcher.streams import read_rate


def _program(engine: str) -> type[Program]:
    if engine != "spark":
        return {"processes": Watch, "stream": Pull}[engine]
    from tests.simulation.query import Query  # PySpark takes longer than many a seed

    return Query


class Outcome(NamedTuple):
    seed: int
    engine: str
    complaints: list[Complaint]
    injected: Counter[str]
    checked: Counter[str]
    virtual: float  # seconds that it took there, and …
    cpu: float  # … here


def play(
    seed: int,
    engine: str | None = None,
    given: Mapping[str, Any] | None = None,
    trace: Trace | None = None,
) -> Outcome:
    if engine == "standby":
        from tests.simulation.standby import play_standby

        return play_standby(seed, trace, (given or {}).get("events"))
    return play_scenario(draw(seed, engine, given), trace)


def play_scenario(scenario: Scenario, trace: Trace | None = None) -> Outcome:
    began = time.process_time()
    universe = Universe(scenario, trace)
    with mock.patch.object(read_rate, "FULL_BYTES", scenario.full_bytes):
        _program(scenario.engine)(universe).play()
    judge, service = universe.judge, universe.service
    judge.check_throttled(service.reads, service.refused, service.begun)
    complaints = [each for one in universe.all for each in one.judge.complaints]
    checked = judge.checked + Counter(
        {
            "runs": len(judge.runs),
            "records written": sum(len(shard.numbers) for shard in judge.shards()),
            "calls": service.calls.total(),
            "other streams": len(universe.others),
        }
    )
    injected = universe.injected + Counter(
        {f"answer: {name}": count for name, count in service.injected.items()}
    )
    return Outcome(
        scenario.seed,
        scenario.engine,
        complaints,
        injected,
        checked,
        universe.scheduler.now,
        time.process_time() - began,
    )
