"""Small wrong edits of the syntax tree, found by names: no text is quoted, so lines may move.

An edit is made in one function (or constant), found in the whole package by its dotted name,
written as far as it is unique: `Lineage.ready`, or `token.make` where several modules have a
`make`. In it a place is found by the names that it mentions: attributes, functions, keywords,
strings, and `yield`, `continue`, `return`. Names of local variables are of no use; a test renames
them all.

What stands there `becomes` other code, in which braces stand for parts of what was found:
`{it}` all of it, `{0}` `{1}` … the arguments of a call or the operands of `and`/`or`, `{left}` and
`{right}` those of a comparison, `{function}` what is called, and `{object}` what the (first) name
belongs to, as `shard` in `shard.position`.
"""

from __future__ import annotations

import ast
import copy
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import NamedTuple, TypeVar

import watcher

PACKAGE = Path(watcher.__file__).parent

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Assign | ast.AnnAssign
Change = Callable[[ast.AST], None]
"""Edits a function's tree in place. Raises NotFoundError."""


class NotFoundError(Exception):
    """An edit does not fit the code any more: the text says which name is gone."""


class Place(NamedTuple):
    """A function, a class or a constant of the package."""

    path: Path
    name: str
    """Dotted, with its modules."""


# Where the edits are made


@cache
def places() -> tuple[Place, ...]:
    """All functions, classes, their fields, and constants of the package."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text())
        found += [Place(path, name) for name, _ in _definitions(tree, _module(path))]
    return tuple(found)


def _module(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)


def _definitions(node: ast.AST, above: str) -> Iterator[tuple[str, Definition]]:
    for each in ast.iter_child_nodes(node):
        match each:
            case ast.FunctionDef(name=own) | ast.AsyncFunctionDef(name=own):
                yield f"{above}.{own}", each
            case ast.ClassDef(name=own):
                yield f"{above}.{own}", each
                yield from _definitions(each, f"{above}.{own}")
            case ast.Assign(targets=[ast.Name(id=own)]) | ast.AnnAssign(target=ast.Name(id=own)):
                yield f"{above}.{own}", each


def find(name: str) -> Place:
    """The only place whose dotted name ends so. Raises NotFoundError."""
    found = [place for place in places() if f".{place.name}".endswith(f".{name}")]
    if not found:
        last = name.rpartition(".")[2]
        near = [place.name for place in places() if place.name.endswith(f".{last}")]
        hint = f"; there is {', '.join(near)}" if near else ""
        raise NotFoundError(f"the package has no {name} any more{hint}")
    if len(found) > 1:
        raise NotFoundError(f"{name} may be any of {', '.join(each.name for each in found)}")
    return found[0]


def edited(name: str, change: Change, prepare: Change = lambda node: None) -> tuple[Place, str]:
    """Where it stands, and the text of its file with this change. Raises NotFoundError.

    `prepare` may change the function before.
    """
    place = find(name)
    tree = ast.parse(place.path.read_text())
    node = node_of(tree, place)
    prepare(node)
    before = ast.dump(node)
    try:
        change(node)
    except NotFoundError as error:
        raise NotFoundError(f"{place.name}: {error}") from None
    if ast.dump(node) == before:
        raise NotFoundError(f"{place.name}: the edit changes nothing")
    return place, ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def recompiled(function: FunctionType, change: Change) -> FunctionType:
    """The same function with this change. Raises NotFoundError."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    change(tree.body[0])
    found: dict[str, FunctionType] = {}
    code = compile(ast.fix_missing_locations(tree), inspect.getfile(function), "exec")
    exec(code, function.__globals__, found)
    return found[function.__name__]


def node_of(tree: ast.Module, place: Place) -> Definition:
    """Where that stands in the tree of its file."""
    return next(
        node for name, node in _definitions(tree, _module(place.path)) if name == place.name
    )


# What is edited


def condition(*names: str, becomes: str, nth: int | None = None) -> Change:
    """Another test in the `if`, `while` or comprehension whose test mentions these names."""
    return _replaced("condition", names, becomes, nth, _tests)


def guard(*names: str, becomes: str, nth: int | None = None) -> Change:
    """Another test in the innermost `if` around the statement that mentions these names."""

    def change(node: ast.AST) -> None:
        statement = _one("statement", list(_statements(node)), names, nth, node)
        around = [
            each
            for each in _walk(node)
            if isinstance(each, ast.If) and any(part is statement for part in _walk(each))
        ]
        if not around:
            raise NotFoundError(f"no condition around the statement with {_listed(names)}")
        _put(node, around[-1].test, _expression(becomes, around[-1].test, names))

    return change


def logic(*names: str, becomes: str, nth: int | None = None) -> Change:
    """Another expression for the smallest `and` or `or` that mentions these names."""
    return _replaced("`and` or `or`", names, becomes, nth, _of_type(ast.BoolOp))


def comparison(*names: str, becomes: str, nth: int | None = None) -> Change:
    """Another expression for the comparison that mentions these names."""
    return _replaced("comparison", names, becomes, nth, _of_type(ast.Compare))


def called(name: str, becomes: str, nth: int | None = None) -> Change:
    """Another expression for the call of this function."""

    def calls(node: ast.AST) -> list[ast.expr]:
        return [each for each in _of_type(ast.Call)(node) if _called_name(each) == name]

    return _replaced("call", [name], becomes, nth, calls)


def argument(function: str, which: int | str, becomes: str, nth: int | None = None) -> Change:
    """Another argument, by place or keyword, in the call of this function."""

    def change(node: ast.AST) -> None:
        calls = [each for each in _of_type(ast.Call)(node) if _called_name(each) == function]
        call = _one("call", calls, [function], nth, node)
        assert isinstance(call, ast.Call)
        given: list[ast.expr] = call.args
        if isinstance(which, str):
            given = [each.value for each in call.keywords if each.arg == which]
        place = 0 if isinstance(which, str) else which
        if place >= len(given):
            raise NotFoundError(f"{function} is not called with {which!r}")
        _put(node, given[place], _expression(becomes, given[place], [function]))

    return change


def attribute(name: str, becomes: str, nth: int | None = None) -> Change:
    """Another expression where this attribute is read."""

    def reads(node: ast.AST) -> list[ast.expr]:
        return [
            each
            for each in _walk(node)
            if isinstance(each, ast.Attribute)
            and each.attr == name
            and isinstance(each.ctx, ast.Load)
        ]

    return _replaced("read attribute", [name], becomes, nth, reads)


def assigned(name: str, becomes: str, nth: int | None = None) -> Change:
    """Another value for this attribute, also where several are assigned at once."""

    def values(node: ast.AST) -> list[ast.expr]:
        return [value for target, value in _assignments(node) if _own_name(target) == name]

    return _replaced("assignment", [name], becomes, nth, values, mention=False)


def constant(becomes: str) -> Change:
    """Another value for a constant, or for a field's default."""

    def change(node: ast.AST) -> None:
        assert isinstance(node, ast.Assign | ast.AnnAssign)
        if node.value is None:
            raise NotFoundError("it has no value any more")
        node.value = _expression(becomes, node.value, [])

    return change


def looped_over(*names: str, becomes: str, nth: int | None = None) -> Change:
    """Other things to go through in the `for` whose body mentions these names."""

    def change(node: ast.AST) -> None:
        loops = [each for each in _walk(node) if isinstance(each, ast.For)]
        loop = _one("loop", loops, names, nth, node)
        assert isinstance(loop, ast.For)
        loop.iter = _expression(becomes, loop.iter, names)

    return change


def returned(*names: str, becomes: str, nth: int | None = None) -> Change:
    """Another value in the `return` that mentions these names."""

    def values(node: ast.AST) -> list[ast.expr]:
        returns = [each for each in _walk(node) if isinstance(each, ast.Return)]
        return [each.value for each in returns if each.value is not None]

    return _replaced("`return`", names, becomes, nth, values)


def without(*names: str, nth: int | None = None) -> Change:
    """The statement that mentions these names is left out."""
    return instead(*names, do="pass", nth=nth)


def instead(*names: str, do: str, nth: int | None = None) -> Change:
    """Other statements in the place of the one that mentions these names."""
    return _around(names, nth, lambda block, place, new: _splice(block, place, place + 1, new), do)


def before(*names: str, do: str, nth: int | None = None) -> Change:
    """Other statements before the one that mentions these names."""
    return _around(names, nth, lambda block, place, new: _splice(block, place, place, new), do)


def after(*names: str, do: str, nth: int | None = None) -> Change:
    """Other statements after the one that mentions these names."""
    return _around(names, nth, lambda block, at, new: _splice(block, at + 1, at + 1, new), do)


def earlier(*names: str, nth: int | None = None) -> Change:
    """The statement that mentions these names, and the one above it, change places."""

    def swap(block: list[ast.stmt], place: int, new: list[ast.stmt]) -> None:
        if place == 0:
            raise NotFoundError(f"no statement stands above the one with {_listed(names)}")
        block[place - 1], block[place] = block[place], block[place - 1]

    return _around(names, nth, swap, "pass")


def in_handler(error: str, do: str) -> Change:
    """More statements at the start of the `except` of this error."""

    def change(node: ast.AST) -> None:
        _handler(node, error).body[:0] = _parsed(do, None, [])

    return change


def uncaught(error: str) -> Change:
    """This error is none of those that are caught together."""

    def change(node: ast.AST) -> None:
        caught = _handler(node, error).type
        if not isinstance(caught, ast.Tuple):
            raise NotFoundError(f"{error} is not caught together with others")
        caught.elts = [each for each in caught.elts if _own_name(each) != error]

    return change


def both(*changes: Change) -> Change:
    """All of these edits, of the same function."""

    def change(node: ast.AST) -> None:
        for each in changes:
            each(node)

    return change


# How it is found

_Node = TypeVar("_Node", bound=ast.AST)


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """As `ast.walk`, but in the order of the text."""
    yield node
    for each in ast.iter_child_nodes(node):
        yield from _walk(each)


def _mentions(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    for each in _walk(node):
        match each:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.keyword(arg=str(name)):
                yield name, each
            case ast.Constant(value=str(name)):
                yield name, each
            case ast.Yield() | ast.Continue() | ast.Return():
                yield type(each).__name__.lower(), each


def _has_all(node: ast.AST, names: Sequence[str]) -> bool:
    return set(names) <= {name for name, _ in _mentions(node)}


def _one(
    what: str, found: Sequence[_Node], names: Sequence[str], nth: int | None, within: ast.AST
) -> _Node:
    """The only one that mentions the names, or the `nth` of them. Raises NotFoundError."""
    fitting = [each for each in found if _has_all(each, names)]
    if nth is not None and -len(fitting) <= nth < len(fitting):
        return fitting[nth]
    if len(fitting) == 1:
        return fitting[0]
    known = {name for name, _ in _mentions(within)}
    if gone := [name for name in names if name not in known]:
        raise NotFoundError(f"it mentions no {_listed(gone)} any more")
    raise NotFoundError(f"{len(fitting)} times a {what} with {_listed(names)}, not once")


def _listed(names: Sequence[str]) -> str:
    return " and ".join(names)


def _tests(node: ast.AST) -> list[ast.expr]:
    found: list[ast.expr] = []
    for each in _walk(node):
        if isinstance(each, ast.If | ast.While | ast.IfExp):
            found.append(each.test)
        elif isinstance(each, ast.comprehension):
            found += each.ifs
        elif isinstance(each, ast.match_case) and each.guard is not None:
            found.append(each.guard)
    return found


def _of_type(kind: type[ast.expr]) -> Callable[[ast.AST], list[ast.expr]]:
    def found(node: ast.AST) -> list[ast.expr]:
        return [each for each in _walk(node) if isinstance(each, kind)]

    return found


def _called_name(node: ast.expr) -> str:
    return _own_name(node.func) if isinstance(node, ast.Call) else ""


def _own_name(node: ast.AST) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _assignments(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Each target, and its value."""
    for each in _walk(node):
        match each:
            case ast.AnnAssign(target=only, value=ast.expr() as value):
                yield only, value
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                        yield from zip(target.elts, value.elts, strict=True)
                    else:
                        yield target, value


def _statements(node: ast.AST) -> Iterator[ast.stmt]:
    """Those that hold no others."""
    for each in _walk(node):
        if isinstance(each, ast.stmt) and not hasattr(each, "body") and not hasattr(each, "cases"):
            yield each


def _handler(node: ast.AST, error: str) -> ast.ExceptHandler:
    handlers = [
        each
        for each in _walk(node)
        if isinstance(each, ast.ExceptHandler) and each.type is not None
    ]
    fitting = [each for each in handlers if each.type and _has_all(each.type, [error])]
    if len(fitting) != 1:
        raise NotFoundError(f"{error} is caught {len(fitting)} times, not once")
    return fitting[0]


# How it is changed


def _replaced(
    what: str,
    names: Sequence[str],
    becomes: str,
    nth: int | None,
    candidates: Callable[[ast.AST], list[ast.expr]],
    *,
    mention: bool = True,
) -> Change:
    def change(node: ast.AST) -> None:
        found = candidates(node)
        wanted = names if mention else []
        if not found:
            raise NotFoundError(f"it has no {what} with {_listed(names)} any more")
        old = _one(what, _innermost(found, wanted), wanted, nth, node)
        _put(node, old, _expression(becomes, old, names))

    return change


def _innermost(found: list[ast.expr], names: Sequence[str]) -> list[ast.expr]:
    """Those that have all names, and hold no other that has them; in their order."""
    fitting = [each for each in found if _has_all(each, names)]
    return [
        each
        for each in fitting
        if not any(part is not each and part in fitting for part in _walk(each))
    ]


def _put(within: ast.AST, old: ast.expr, new: ast.expr) -> None:
    for node in _walk(within):
        for field, value in ast.iter_fields(node):
            if value is old:
                setattr(node, field, new)
                return
            if isinstance(value, list) and any(each is old for each in value):
                setattr(node, field, [new if each is old else each for each in value])
                return


def _around(
    names: Sequence[str],
    nth: int | None,
    put: Callable[[list[ast.stmt], int, list[ast.stmt]], None],
    do: str,
) -> Change:
    def change(node: ast.AST) -> None:
        statement = _one("statement", list(_statements(node)), names, nth, node)
        for each in _walk(node):
            for _, block in ast.iter_fields(each):
                if isinstance(block, list) and any(part is statement for part in block):
                    place = next(at for at, part in enumerate(block) if part is statement)
                    put(block, place, _parsed(do, statement, names))
                    return

    return change


def _splice(block: list[ast.stmt], first: int, last: int, new: list[ast.stmt]) -> None:
    block[first:last] = new


_HOLE = re.compile(r"\{(\w+)\}")


def _expression(text: str, old: ast.expr, names: Sequence[str]) -> ast.expr:
    statement = _parsed(text, old, names)[0]
    assert isinstance(statement, ast.Expr)
    return statement.value


def _parsed(text: str, old: ast.AST | None, names: Sequence[str]) -> list[ast.stmt]:
    """The new code, its holes filled with parts of the old."""
    tree = ast.parse(_HOLE.sub(r"__hole_\1", text))
    filled = _Filled({} if old is None else _parts(old, names)).visit(tree)
    return list(filled.body)


class _Filled(ast.NodeTransformer):
    def __init__(self, parts: dict[str, ast.expr]) -> None:
        self._parts = parts

    def visit_Name(self, node: ast.Name) -> ast.expr:
        hole = node.id.removeprefix("__hole_")
        if hole == node.id:
            return node
        if hole not in self._parts:
            raise NotFoundError(f"what was found has no {{{hole}}}")
        return copy.deepcopy(self._parts[hole])


def _parts(old: ast.AST, names: Sequence[str]) -> dict[str, ast.expr]:
    parts: dict[str, ast.expr] = {}
    whole = old.value if isinstance(old, ast.Expr) else old
    if isinstance(whole, ast.expr):
        parts["it"] = whole
    match whole:
        case ast.Call(func=function, args=arguments):
            parts["function"] = function
            parts |= {str(place): each for place, each in enumerate(arguments)}
        case ast.BoolOp(values=values):
            parts |= {str(place): each for place, each in enumerate(values)}
        case ast.Compare(left=left, comparators=[right]):
            parts |= {"left": left, "right": right}
    for name, each in _mentions(old):
        if name in names[:1] and isinstance(each, ast.Attribute):
            parts.setdefault("object", each.value)
    return parts
