"""Imports point one way, file by file; nothing imports itself in a circle."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import watcher

PACKAGE = Path(watcher.__file__).parent

# From the top of the house to its ground: a file imports only from rooms below its own.
ROOMS = [
    ["__main__"],
    ["cli"],
    ["__init__"],
    ["live", "testing"],
    ["report"],
    ["spark"],
    ["mirror"],
    ["stream", "watching"],
    ["build"],
    ["runtime"],
    ["options"],
    ["time_machine"],
    ["pull", "stores"],
    ["delivery"],
    ["observability"],
    ["streams"],
    ["formatting"],
    ["records"],
    ["aws"],
    ["call_pool"],
    ["shutdown"],
    ["process_start"],
    ["files", "times"],
    ["clock", "declared", "errors", "retry", "safe_path", "version"],
]
LEVEL = {name: -level for level, names in enumerate(ROOMS) for name in names}
MOST_BODY_LINES = 50
MOST_POSITIONAL = 5


def files() -> list[Path]:
    """The package's own files; handlers are users of the package."""
    return [path for path in sorted(PACKAGE.rglob("*.py")) if "builtin_handlers" not in path.parts]


def named(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


def room(name: str) -> str:
    return name.split("/")[0].removesuffix(".py")


def module(path: Path) -> str:
    return ".".join(["watcher", *path.relative_to(PACKAGE).with_suffix("").parts])


MODULES = {module(path).removesuffix(".__init__"): named(path) for path in files()}


@cache
def nodes(path: Path) -> list[ast.AST]:
    """All of a file's syntax."""
    return list(ast.walk(ast.parse(path.read_text())))


@cache
def imports(name: str) -> set[str]:
    """The files that a file imports, at its top, inside a function, or only for types."""
    return set(_imports(name))


def _imports(name: str) -> Iterator[str]:
    for node in nodes(PACKAGE / name):
        if isinstance(node, ast.ImportFrom) and node.module:
            for each in node.names:
                found = MODULES.get(f"{node.module}.{each.name}") or MODULES.get(node.module)
                if found and found != name:
                    yield found
        elif isinstance(node, ast.Import):
            yield from (MODULES[each.name] for each in node.names if each.name in MODULES)


@pytest.mark.parametrize("name", sorted(MODULES.values()))
def test_a_file_imports_only_from_rooms_below_its_own(name: str) -> None:
    own = room(name)
    assert own in LEVEL, f"{name} has no place in ROOMS"
    others = {each for each in imports(name) if room(each) != own}
    above = {each for each in others if LEVEL[room(each)] >= LEVEL[own]}
    assert not above


def test_no_file_is_in_a_circle_of_imports() -> None:
    reached: dict[str, set[str]] = {}
    for name in MODULES.values():
        todo, seen = list(imports(name)), set[str]()
        reached[name] = seen
        while todo:
            each = todo.pop()
            if each not in seen:
                seen.add(each)
                todo.extend(imports(each))
    assert [name for name, found in reached.items() if name in found] == []


def test_only_the_aws_room_talks_to_botocore() -> None:
    imported = re.compile("(import|from) botocore")
    talkers = {room(named(path)) for path in files() if imported.search(path.read_text())}
    assert talkers - {"spark"} == {"aws"}


NO_IO = {
    *("socket", "ssl", "http", "urllib", "requests", "boto3", "botocore", "awscrt"),
    *("threading", "multiprocessing", "concurrent", "asyncio", "queue", "subprocess", "signal"),
    *("os", "time", "select", "selectors"),
}


@pytest.mark.parametrize("path", sorted((PACKAGE / "streams").glob("*.py")), ids=named)
def test_the_core_makes_no_call_starts_no_thread_and_has_no_clock_of_its_own(path: Path) -> None:
    for node in nodes(path):
        match node:
            case ast.Import(names=names):
                assert not NO_IO & {each.name.split(".")[0] for each in names}
            case ast.ImportFrom(module=str(module), names=names):
                assert module.split(".")[0] not in NO_IO
                assert "CLOCK" not in {each.name for each in names}, "it is handed in"
            case ast.Call(func=ast.Attribute(value=ast.Name(id=owner), attr=called)):
                assert called != "sleep", "an executor waits"
                assert (owner, called) != ("datetime", "now"), "a clock is handed in"


def functions() -> Iterator[tuple[Path, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for path in files():
        for node in nodes(path):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield path, node


def test_what_takes_many_arguments_takes_them_by_keyword() -> None:
    for path, node in functions():
        names = [each.arg for each in (*node.args.posonlyargs, *node.args.args)]
        given = [name for name in names if name not in ("self", "cls")]
        assert len(given) <= MOST_POSITIONAL, f"{path}:{node.name}"


def test_no_function_is_longer_than_a_screen() -> None:
    for path, node in functions():
        body = node.body[1:] if ast.get_docstring(node) else node.body
        lines = (node.end_lineno or 0) - body[0].lineno + 1 if body else 0
        assert lines <= MOST_BODY_LINES, f"{path}:{node.name}"


DOCUMENT = PACKAGE.parent / "docs" / "architecture.md"
LINK = re.compile(r"\[`([\w.]+)`\]\(\.\./watcher/([\w/]+\.py)\)")


def defined(name: str, within: list[ast.stmt]) -> bool:
    """Whether a dotted name of classes and functions is defined there."""
    first, _, rest = name.partition(".")
    kinds = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for node in within:
        if isinstance(node, kinds) and node.name == first:
            return not rest or defined(rest, node.body)
    return False


def test_each_function_that_the_architecture_page_names_is_where_it_says() -> None:
    links = LINK.findall(DOCUMENT.read_text())
    assert len(links) > 15
    for name, file in links:
        assert defined(name, ast.parse((PACKAGE / file).read_text()).body), name


def test_each_class_that_the_architecture_page_names_is_ours() -> None:
    ours = {node.name for path in files() for node in nodes(path) if isinstance(node, ast.ClassDef)}
    named = re.findall(r"`([A-Z][a-z]+[A-Z]\w+)`", DOCUMENT.read_text())
    assert len(named) > 5 and set(named) <= ours


def test_each_file_that_the_architecture_page_names_is_there() -> None:
    named_files = re.findall(r"`((?:[a-z_]+/)*[a-z_]+\.py)`", DOCUMENT.read_text())
    own = [name for name in named_files if not name.startswith(("tests/", "scripts/"))]
    assert [name for name in own if not (PACKAGE / name).is_file()] == []
