"""The mutants are edits of the code as it is now; whether each is caught takes half an hour."""

from __future__ import annotations

from pathlib import Path

import pytest

import watcher
from tests.simulation.mutations import MUTANTS
from tests.simulation.mutations.mutant import Mutant

PACKAGE = Path(watcher.__file__).parent


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.what)
def test_what_is_edited_is_there_once(mutant: Mutant) -> None:
    assert (PACKAGE / mutant.file).read_text().count(mutant.before) == 1
