"""The mutants are edits of the code as it is now; whether each is caught takes half an hour."""

from __future__ import annotations

import ast
import builtins
import symtable

import pytest

from tests.simulation.mutations import MUTANTS
from tests.simulation.mutations.edits import edited, find, node_of
from tests.simulation.mutations.mutant import Mutant

all_mutants = pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.what)


@all_mutants
def test_applies_and_knows_all_names_that_it_brings(mutant: Mutant) -> None:
    place, text = edited(mutant.function, mutant.change)
    assert _unknown_names(text) <= _unknown_names(place.path.read_text())


@all_mutants
def test_a_renamed_variable_breaks_none(mutant: Mutant) -> None:
    place, text = edited(mutant.function, mutant.change, prepare=_rename_variables)
    assert _unknown_names(text) <= _unknown_names(place.path.read_text())


def test_each_stands_for_itself() -> None:
    assert len({mutant.what for mutant in MUTANTS}) == len(MUTANTS)


def test_some_variables_are_renamed() -> None:
    place = find("Lineage.ready")
    node = node_of(ast.parse(place.path.read_text()), place)
    _rename_variables(node)
    assert "for shard_renamed in" in ast.unparse(node)


def _unknown_names(text: str) -> set[str]:
    """The names that a module uses, and nobody has set."""
    found = set[str]()
    top = symtable.symtable(text, "module", "exec")
    known = set(top.get_identifiers()) - {
        each.get_name()
        for each in top.get_symbols()
        if not (each.is_assigned() or each.is_imported() or each.is_namespace())
    }
    tables = [top]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        for each in table.get_symbols():
            if each.is_global() and each.is_referenced() and each.get_name() not in known:
                found.add(each.get_name())
    return found - set(dir(builtins)) - {"__file__", "__name__", "__doc__"}


def _rename_variables(node: ast.AST) -> None:
    """Of a function: arguments too, but for `self` and `cls`."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return
    names = set[str]()
    for each in ast.walk(node):
        match each:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                names.add(name)
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
                names.add(name)
    names -= {"self", "cls"}
    for each in ast.walk(node):
        match each:
            case ast.Name(id=name) if name in names:
                each.id = f"{name}_renamed"
            case ast.arg(arg=name) if name in names:
                each.arg = f"{name}_renamed"
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) if name in names:
                each.name = f"{name}_renamed"
