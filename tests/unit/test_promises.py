"""docs/promises.md names, for each promise, a fast proof and a long one that are there."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_TEXT = (ROOT / "docs" / "promises.md").read_text()
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in re.findall(r"^\| \*\*.*\|$", _TEXT, flags=re.M)
]
PROMISES = [row[0].partition("**.")[0].strip("*") for row in ROWS]
SIMULATION = "`scripts/simulate --seeds 300`"


def _files(cell: str) -> list[Path]:
    linked = re.findall(r"\]\((\.\./[^)#]+)", cell)
    return [(ROOT / "docs" / each).resolve() for each in linked]


def _marked(path: Path) -> list[bool]:
    """Whether a file's tests, one by one, are long proofs."""
    tree = ast.parse(path.read_text())
    whole = any(
        ast.unparse(each.targets[0]) == "pytestmark" and ".proof" in ast.unparse(each.value)
        for each in tree.body
        if isinstance(each, ast.Assign)
    )
    return [
        whole or any("mark.proof" in ast.unparse(mark) for mark in each.decorator_list)
        for each in ast.walk(tree)
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
        and each.name.startswith("test_")
    ]


def _names_of_proofs() -> list[str]:
    names = re.search(r"^names=\((.*)\)$", (ROOT / "scripts/proofs").read_text(), flags=re.M)
    assert names
    return names[1].split()


def test_each_promise_is_a_row_of_three_and_the_simulation_that_it_names_a_fast_one() -> None:
    assert len(ROWS) > 10
    assert {len(row) for row in ROWS} == {3}
    assert SIMULATION.strip("`") in (ROOT / "scripts" / "test").read_text()


@pytest.mark.parametrize("row", ROWS, ids=PROMISES)
def test_its_fast_proof_runs_before_each_commit(row: list[str]) -> None:
    fast = row[1]
    assert _files(fast) or SIMULATION in fast
    for path in _files(fast):
        assert path.is_file()
        assert not all(_marked(path)), f"{path.name} is a long proof as a whole"
    assert "scripts/proofs" not in fast


@pytest.mark.parametrize("row", ROWS, ids=PROMISES)
def test_its_long_proof_runs_at_night(row: list[str]) -> None:
    long = row[2]
    named = re.findall(r"`scripts/proofs (\w+)`", long)
    assert named or _files(long)
    assert set(named) <= set(_names_of_proofs())
    for path in _files(long):
        assert path.is_file()
        assert any(_marked(path)), f"{path.name} has no long proof"
