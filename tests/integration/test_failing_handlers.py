"""Handlers that fail, through the real command line: what is kept, what is said, how it ends."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.simulator import Simulator
from tests.support.program import run

# A database that is away for a while; or for ever, on an item's key.
AWAY = '''
"""Store each change."""

from pathlib import Path


def handle(record):
    if Path("away").exists() and Path("away").read_text() in ("", record.key["pk"]):
        with open("tries", "a") as file:
            print(record.sequence_number, file=file)
        tries = Path("tries").read_text().count(chr(10))
        if tries >= 4 and not Path("away").read_text():
            Path("away").unlink()
        raise ConnectionError("no database")
    print(record.sequence_number, flush=True)
'''
ALL = ("orders", "--from", "trim-horizon", "--handlers", ".", "--away")


@pytest.fixture
def sim() -> Iterator[Simulator]:
    with Simulator(table="orders") as simulator:
        for number in range(20):
            simulator.put({"pk": {"S": f"k{number}"}})
        yield simulator


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "away.py").write_text(AWAY.lstrip())
    return tmp_path


def numbers(sim: Simulator) -> list[str]:
    return [record.sequence_number for record in sim.records]


@pytest.mark.parametrize("more", [[], ["--concurrency", "2"]])
def test_with_a_checkpoint_a_database_that_is_away_costs_time_and_no_record(
    sim: Simulator, place: Path, more: list[str]
) -> None:
    (place / "away").touch()
    options = ["--checkpoint", "state.json", "--no-follow", *more]
    program = run(*ALL, *options, env=sim.environment, cwd=place)
    assert program.status == 0
    assert program.out == numbers(sim)
    (told,) = (line for line in program.err if "no database" in line)
    assert told.endswith("; trying again until it succeeds")
    assert program.err[-1].startswith("Done: 20 records (20 INSERT), 1 shard")
    assert "HANDLED" not in program.err[-1] and "failure" not in program.err[-1]


@pytest.mark.parametrize(
    ("end", "more", "told"),
    [
        (["--no-follow"], [], "1 NOT HANDLED (see --on-error)"),
        (["--no-follow", "--on-error", "retry:1,log"], [], "1 NOT HANDLED (see --on-error)"),
        (["--no-follow", "--on-error", "dead-letter:dead"], [], "1 dead letter"),
        (["--max-records", "20"], ["--concurrency", "2"], "1 NOT HANDLED (see --on-error)"),
    ],
)
def test_a_watch_with_an_end_goes_on_behind_a_failed_record_and_ends_with_status_1(
    sim: Simulator, place: Path, end: list[str], more: list[str], told: str
) -> None:
    """As `make -k`: the last line says how many failed."""
    (place / "away").write_text("k5")
    program = run(*ALL, *end, *more, env=sim.environment, cwd=place)
    assert program.status == 1
    assert len(program.out) == 19
    assert program.err[-1].endswith(f", {told}")


# Writes to another account, as many a handler does.
