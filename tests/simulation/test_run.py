"""Seeds of each engine, and that a seed is the same run wherever it runs."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.simulation.run import play

_HASHED = """
from tests.simulation.run import play
from tests.simulation.scheduler import Trace
for seed in range(30):
    trace = Trace(keep=False)
    play(seed, {engine!r}, trace=trace)
    print(trace.digest)
"""


def needs(engine: str) -> None:
    if engine == "spark":
        pytest.importorskip("pyspark")


@pytest.mark.parametrize("engine", ["processes", "stream", "spark"])
def test_few_reads_are_throttled_where_a_shard_allows_one_a_second(engine: str) -> None:
    needs(engine)
    given = {"habits": {"shard_reads_per_second": 1.0, "latency": 0.01}}
    outcomes = [play(seed, engine, given) for seed in range(10)]
    # Where more is written than comes through one read a second, some of it is late.
    found = {each.check for outcome in outcomes for each in outcome.complaints}
    assert found <= {"late"}
    assert sum(outcome.checked["shares of throttled reads"] for outcome in outcomes) >= 5


def test_a_query_that_is_killed_again_and_again_goes_on_exactly() -> None:
    """At any moment; in every second case while a micro-batch is planned and not committed."""
    needs("spark")
    given = {"writes": 60.0, "trouble": 60.0, "limit": 10, "events": ["kill the program"] * 50}
    outcomes = [play(seed, "spark", given) for seed in range(6)]
    assert [outcome for outcome in outcomes if outcome.complaints] == []
    assert sum(outcome.injected["kill the program"] for outcome in outcomes) > 100


def test_a_limit_ends_a_watch_of_items_and_changes_of_several_shards() -> None:
    given = {"concurrency": 3, "batch": 0, "snapshot": True, "max_records": 7}
    outcomes = [play(seed, "processes", given) for seed in (20352, 20387, 20435, *range(10))]
    assert [outcome for outcome in outcomes if outcome.complaints] == []


@pytest.mark.proof
@pytest.mark.parametrize("engine", ["processes", "stream", "spark"])
def test_a_seed_is_the_same_run_in_any_process(engine: str) -> None:
    needs(engine)
    first, second = hashes(engine, "1"), hashes(engine, "2")
    assert len(set(first)) == 30
    assert first == second


def hashes(engine: str, hash_seed: str) -> list[str]:
    environment = os.environ | {"PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-c", _HASHED.format(engine=engine)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.split()
