"""The mutants are edits of the code as it is now; whether each is caught takes half an hour."""

import ast

import pytest

from tests.simulation.mutations import MUTANTS, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.what)
def test_fits_the_code(mutant: Mutant) -> None:
    ast.parse(mutant.edited())


def test_each_stands_for_itself() -> None:
    assert len({mutant.what for mutant in MUTANTS}) == len(MUTANTS)
