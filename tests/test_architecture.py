"""Imports point one way, from the bottom of the house to its top."""

import ast
from pathlib import Path

import pytest

import watcher

PACKAGE = Path(watcher.__file__).parent

# The rooms, from the ground up: a file imports only from rooms below its own, and from its own.
ROOMS = [
    {"safe_path"},
    {"backoff", "clock", "declared", "errors", "files", "forks", "stepping", "version"},
    {"side_by_side"},
    {"listening", "service", "telemetry"},
    {"record"},
    {"printing"},
    {"reading"},
    {"past"},
    {"delivery", "report"},
    {"engine"},
    {"metrics", "spark"},
    {"arguments"},
    {"watching"},
    {"stream"},
    {"live", "mirror", "testing"},
    {"__init__"},
    {"cli"},
    {"__main__"},
]
LEVEL = {name: level for level, names in enumerate(ROOMS) for name in names}
# Whoever looks for a way to one of them finds all of it there.
MOST_LINES = 350
MOST_BODY_LINES = 50
MOST_ATTRIBUTES = 20


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def modules() -> list[Path]:
    """The package's own files; handlers are users of the package."""
    return [path for path in sorted(PACKAGE.rglob("*.py")) if "builtin_handlers" not in path.parts]


def imported(path: Path) -> set[str]:
    """The rooms that a file imports, at its top or inside a function."""
    rooms: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            if node.module == "watcher":
                rooms.update(a.name if a.name in LEVEL else "__init__" for a in node.names)
            elif node.module.startswith("watcher."):
                rooms.add(node.module.split(".")[1])
        elif isinstance(node, ast.Import):
            rooms.update(a.name.split(".")[1] for a in node.names if a.name.startswith("watcher."))
    return rooms


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_file_imports_only_from_rooms_below_its_own(path: Path) -> None:
    own = room(path)
    assert own in LEVEL, f"{path} has no place in ROOMS"
    above = {name for name in imported(path) - {own} if LEVEL[name] >= LEVEL[own]}
    assert not above


def test_each_room_says_in_a_sentence_what_it_is_for() -> None:
    for path in PACKAGE.glob("*/__init__.py"):
        assert ast.get_docstring(ast.parse(path.read_text())), path


def test_only_the_service_room_talks_to_botocore() -> None:
    talkers = {
        room(path)
        for path in modules()
        if "import botocore" in path.read_text() or "from botocore" in path.read_text()
    }
    assert talkers - {"spark"} == {"service"}


def test_no_file_is_longer_than_it_takes_to_know_it() -> None:
    lengths = {path: path.read_text().count("\n") for path in modules()}
    long = {str(path): lines for path, lines in lengths.items() if lines > MOST_LINES}
    assert not long


def test_no_function_is_longer_than_a_screen() -> None:
    long = []
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                body = node.body[1:] if ast.get_docstring(node) else node.body
                lines = (node.end_lineno or 0) - body[0].lineno + 1 if body else 0
                if lines > MOST_BODY_LINES:
                    long.append(f"{path}:{node.name} {lines}")
    assert not long


def test_no_class_keeps_more_than_a_reader_can() -> None:
    large = []
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                names = {
                    each.attr
                    for each in ast.walk(node)
                    if isinstance(each, ast.Attribute)
                    and isinstance(each.ctx, ast.Store)
                    and isinstance(each.value, ast.Name)
                    and each.value.id == "self"
                }
                if len(names) > MOST_ATTRIBUTES:
                    large.append(f"{path}:{node.name} {len(names)}")
    assert not large


def test_no_two_classes_share_a_name() -> None:
    places: dict[str, list[str]] = {}
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name.lstrip("_"), []).append(str(path))
    assert not {name: paths for name, paths in places.items() if len(paths) > 1}
