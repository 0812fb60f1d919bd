"""The mutants are edits of the code as it is now; whether each is caught takes half an hour."""

import ast
from pathlib import Path

import pytest

from tests.simulation.mutants import Mutant, mutants, show_all


@pytest.mark.parametrize("mutant", [*mutants()], ids=lambda mutant: mutant.what)
def test_fits_the_code(mutant: Mutant) -> None:
    ast.parse(mutant.edited())


def test_a_description_that_no_mutant_has_is_no_success(capsys: pytest.CaptureFixture[str]) -> None:
    assert show_all(1, "nobody's") == 2
    assert capsys.readouterr().err == 'no mutant is described by "nobody\'s"\n'


def test_no_block_is_passed_over() -> None:
    lines = Path(__file__).with_name("mutants.txt").read_text().splitlines()
    blocks = [line for line in lines[4:] if line[:2] not in ("", "# ", "- ", "+ ", '{"')]
    assert len(blocks) == len({mutant.what for mutant in mutants()})
