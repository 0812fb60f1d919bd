"""Imports point one way, from the bottom of the house to its top."""

import ast
from pathlib import Path

import pytest

import watcher

PACKAGE = Path(watcher.__file__).parent

LAYERS = [
    {"calls", "errors", "flag", "forks"},
    {"http", "output", "position", "record", "tally", "text"},
    {"batches", "document", "filters", "page"},
    {"streams"},
    {"lineage", "messages", "report"},
    {"checkpoint", "reader", "unlisted"},
    {"queue", "dispatcher"},
    {"handlers", "snapshot", "worker"},
    {"lambdas", "prometheus"},
    {"exporter"},
    {"manager", "spark"},
    {"watching"},
    {"stream"},
    {"testing"},
    {"__init__"},
    {"cli"},
    {"__main__"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def part(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """The parts of the package that a file imports, at its top or inside a function."""
    parts: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            if node.module == "watcher":
                parts.update(a.name if a.name in LEVEL else "__init__" for a in node.names)
            elif node.module.startswith("watcher."):
                parts.add(node.module.split(".")[1])
        elif isinstance(node, ast.Import):
            parts.update(a.name.split(".")[1] for a in node.names if a.name.startswith("watcher."))
    return parts


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=part)
def test_a_file_imports_only_from_layers_below_its_own(path: Path) -> None:
    if "builtin_handlers" in path.parts:
        pytest.skip("handlers are users of the package")
    own = part(path)
    assert own in LEVEL, f"{path} has no place in LAYERS"
    above = {name for name in imported(path) - {own} if LEVEL[name] >= LEVEL[own]}
    if own == "cli":  # its files share the package's __init__
        above -= {"cli"}
    assert not above


def test_only_one_file_talks_to_botocore() -> None:
    talkers = {
        part(path)
        for path in PACKAGE.rglob("*.py")
        if "import botocore" in path.read_text() or "from botocore" in path.read_text()
    }
    assert talkers - {"spark"} == {"streams"}
