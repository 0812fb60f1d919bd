"""The whole program against the simulator: splits, rotations, kills, resumes."""

import random
import signal
from pathlib import Path

import pytest

from tests.simulator import Simulator, judge
from tests.support.program import Program, numbers, run

SHARDS = 2


def assert_complete(sim: Simulator, delivered: list[str]) -> None:
    assert not any(judge(sim.records, delivered))


def test_twenty_thousand_records_over_splits_and_rotations_arrive_once_and_in_order(
    sim: Simulator,
) -> None:
    chance = random.Random(5)
    with Program("orders", "--print-json", env=sim.environment) as program:
        program.wait_for_status("Watching")
        for generation in range(14):
            sim.bulk(1500, keys=100, remove_every=7)
            if generation % 3 == 0:
                sim.split(chance.choice(sim.open_shards))
            else:
                sim.rotate(chance.choice(sim.open_shards))
        program.wait_for_lines(21_000)
        assert program.end() == 0
    assert_complete(sim, numbers(program))


@pytest.mark.parametrize("workers", ["processes", "threads"])
def test_the_whole_program_killed_and_resumed_loses_nothing(
    sim: Simulator, tmp_path: Path, workers: str
) -> None:
    place = ("--checkpoint", str(tmp_path / "state.json"))
    arguments = ("orders", "--print-json", "--workers", workers, *place)
    delivered: list[str] = []
    with Program(*arguments, env=sim.environment) as program:
        program.wait_for_status("Watching")
        sim.bulk(5000, keys=40)
        program.wait_for_lines(1000)
        assert bool(children_of(program.process.pid)) == (workers == "processes")
        program.end(signal.SIGKILL)
    delivered += numbers(program)
    sim.rotate("all")
    sim.bulk(5000, keys=40)
    with Program(*arguments, env=sim.environment) as program:
        program.wait_for_status("Resuming")
        program.wait_for(lambda: {*delivered, *numbers(program)} == {*written(sim)})
        assert program.end() == 0
    delivered += numbers(program)
    assert not any(judge(sim.records, list(dict.fromkeys(delivered))))
    again = run(*arguments, "--no-follow", env=sim.environment)
    assert numbers(again) == []


def test_a_clock_that_jumps_a_day_back_and_forth_changes_nothing(
    sim: Simulator, tmp_path: Path
) -> None:
    folder = tmp_path / "handlers"
    folder.mkdir()
    (folder / "jumpy.py").write_text(
        "import time\nreal, jump = time.time, 86400\n\n\ndef handle(record):\n"
        "    global jump\n    jump = -jump\n    time.time = lambda: real() + jump\n"
        "    print(record.sequence_number)\n"
    )
    arguments = ["orders", "--jumpy", "--checkpoint", str(tmp_path / "state.json")]
    delivered: list[str] = []
    for start in (["--from", "trim-horizon"], []):
        sim.bulk(301)
        with Program(*arguments, *start, env=sim.environment, cwd=tmp_path) as program:
            program.wait_for_lines(301)
            sim.rotate("all")
            sim.bulk(300)
            program.wait_for_lines(601)
            assert program.end() == 0
        assert not any("DATA LOSS" in line for line in program.err)
        delivered += program.out
    assert not any(judge(sim.records, delivered))


def written(sim: Simulator) -> list[str]:
    return [record.sequence_number for record in sim.records]


def children_of(pid: int) -> list[int]:
    """The process's own children (Linux)."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
