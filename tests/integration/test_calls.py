"""`--call` and handlers' own options through the real command line."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.simulator import Simulator
from tests.support.program import run

ALL = ("orders", "--from", "trim-horizon", "--max-records", "2")


@pytest.fixture(scope="module")
def sim() -> Iterator[Simulator]:
    with Simulator(table="orders") as simulator:
        simulator.write("a", 2)
        yield simulator


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a package, a module and a handler that declares an option."""
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "changes.py").write_text(
        "class Shop:\n    def sell(record): print('sell', record['eventName'])\n"
        "def note(record): print('note', record.key['pk'])\n"
        "number = 3\n"
        "def two(record, more): ...\n"
    )
    (tmp_path / "bad.py").write_text("1 / 0\n")
    (tmp_path / "handlers").mkdir()
    (tmp_path / "handlers" / "greet.py").write_text(
        '"""Greet."""\n'
        'OPTIONS = {"greeting": ("WORD", "what to say, at 100%")}\n'
        "word = 'hello'\n"
        "def configure(greeting='hello'):\n    global word\n    word = greeting\n"
        "def handle(record): print(word)\n"
    )
    return tmp_path


def test_functions_are_called_in_the_order_given_beside_handlers(
    sim: Simulator, place: Path
) -> None:
    options = ["--call", "app.changes:note", "--greet", "--call", "app.changes:Shop.sell"]
    program = run(*ALL, *options, env=sim.environment, cwd=place)
    assert program.out == ["note a", "hello", "sell INSERT", "note a", "hello", "sell MODIFY"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("app.changes", "app.changes: give MODULE:FUNCTION, such as app:changes"),
        ("./app/changes.py:note", "give MODULE:FUNCTION, such as app.changes:handle"),
        ("app.changes:two", "can't be called with (record): missing a required argument: 'more'"),
        ("app.nosuch:f", "app.nosuch can't be imported: ModuleNotFoundError"),
        ("bad:f", "bad can't be imported: ZeroDivisionError"),
        ("app.changes:nosuch", "app.changes has no function nosuch"),
        ("app.changes:number", "app.changes has no function number"),
    ],
)
def test_a_function_that_cannot_be_called_is_refused(
    sim: Simulator, place: Path, name: str, words: str
) -> None:
    program = run(*ALL, "--call", name, env=sim.environment, cwd=place)
    assert program.status == 2
    assert words in program.err[-1]
    assert program.out == []
