"""Tests use what the package offers: none touches a private name of it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import watcher

TESTS = Path(__file__).parents[1]
PACKAGE = Path(watcher.__file__).parent

# In texts: where something is patched, or a program of a test's own.
_IN_TEXT = re.compile(r"\.(_[A-Za-z]\w*)")
_BY_NAME = {"setattr", "getattr", "delattr", "hasattr", "object", "attrgetter"}


def test_no_test_touches_a_private_name() -> None:
    assert _all_used() == {}, (
        "test the public behaviour, or hand in a collaborator or a Timing instead"
    )


def _all_used() -> dict[str, list[str]]:
    """The private names of the package that each file of the tests uses."""
    private = {
        name
        for path in PACKAGE.rglob("*.py")
        for name in _defined(ast.parse(path.read_text()))
        if _is_private(name)
    }
    found = {}
    for path in sorted(TESTS.rglob("*.py")):
        tree = ast.parse(path.read_text())
        own = _defined(tree)
        names = sorted({name for name in _used(tree) if name in private and name not in own})
        if names:
            found[str(path.relative_to(TESTS.parent))] = names
    return found


def _is_private(name: str) -> bool:
    of_python = name.startswith("__") or name in ("_", "_fields", "_replace", "_asdict")
    return name.startswith("_") and not of_python


def _defined(tree: ast.AST) -> set[str]:
    """All names of functions, classes, variables and attributes that it sets."""
    names = set[str]()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                names.add(name)
            case ast.ClassDef(name=name) | ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name, ctx=ast.Store()):
                names.add(name)
    return names


def _used(tree: ast.AST) -> Iterator[str]:
    """The private names that are reached through another: an object, an import, a text."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="self" | "cls")):
                pass
            case ast.Attribute(attr=name):
                yield name
            case ast.ImportFrom(names=aliases):
                yield from (alias.name for alias in aliases)
            case ast.Call(args=arguments) if _name(node.func) in _BY_NAME:
                texts = [each.value for each in arguments if isinstance(each, ast.Constant)]
                yield from (text for text in texts if isinstance(text, str))
            case ast.keyword(arg=str(name)):
                yield name
        if isinstance(node, ast.Constant) and "watcher." in str(node.value):
            yield from _IN_TEXT.findall(str(node.value))


def _name(function: ast.expr) -> str:
    match function:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""
