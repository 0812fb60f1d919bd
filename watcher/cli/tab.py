"""Answers a TAB: what can stand at the cursor, found without a call and without boto3."""

from __future__ import annotations

import argparse
import ast
import configparser
import contextlib
import importlib.util
import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from argcomplete.finders import CompletionFinder
from argcomplete.lexers import split_line

from watcher import cli
from watcher.cli import options, pages
from watcher.errors import WatcherError

Completions = Iterable[str]


def answer() -> NoReturn:
    """Write what can stand at the cursor for the shell that asks, and end.

    The shell's part is argcomplete's: the line in COMP_LINE, the answer to descriptor 8.
    """
    line, point = os.environ["COMP_LINE"], int(os.environ["COMP_POINT"])
    words = split_line(line, point)[3]
    skipped = _place_of_program(words) + 1
    words = words[skipped:]
    name = words[0] if words and words[0] in cli.COMMANDS else "watch"
    # What argcomplete takes for the program: a command stands in its place.
    os.environ["_ARGCOMPLETE"] = str(skipped + (name != "watch"))
    # Readline leaves an @ in the word, though it is among those that end words.
    breaks = os.environ.get("_ARGCOMPLETE_COMP_WORDBREAKS", "")
    os.environ["_ARGCOMPLETE_COMP_WORDBREAKS"] = breaks.replace("@", "")
    try:
        parser = _parser(name, words)
    except WatcherError:  # a file of defaults that can't be used: said when the command runs
        os._exit(1)
    for action in parser._actions:
        action.completer = _completer(  # type: ignore[attr-defined]
            action, parser, bool(words)
        )
    # Options come only after a dash: a bare TAB shows what has to stand there.
    CompletionFinder()(parser, always_complete_options=False)
    raise AssertionError("the answer ends the process")


def _place_of_program(words: list[str]) -> int:
    """Variables may be set before it."""
    first = next((place for place, word in enumerate(words) if "=" not in word), 0)
    return first + 2 if words[first + 1 : first + 3] == ["-m", "watcher"] else first


def _parser(name: str, words: list[str]) -> options.Parser:
    made: options.Parser
    try:
        made = cli.command(name).parser(words)
    except WatcherError:  # the folder of handlers that is just being typed
        made = cli.command(name).parser([])
    return made


def _completer(
    action: argparse.Action, parser: options.Parser, begun: bool
) -> Callable[..., Completions | dict[str, str]]:
    """What completes the value of an option or an operand."""
    if isinstance(action, pages.Help):
        return lambda **_: pages.topics(parser)
    if action.dest == "stream" and parser.command == "watch" and not begun:
        return lambda **_: {name: text for name, text in cli.COMMANDS.items() if name != "watch"}
    if action.choices is not None:
        return lambda **_: list(map(str, action.choices or ()))
    if values := getattr(action, "values", ()):
        return _values(values)
    option = action.option_strings[0] if action.option_strings else ""
    return _BY_OPTION.get(option) or _BY_METAVAR.get(str(action.metavar), _nothing)


def _nothing(**_: Any) -> Completions:
    return ()


def _values(values: tuple[str, ...]) -> Callable[..., Completions]:
    """Words; after `dead-letter:` a file, and after a comma another word."""

    def complete(prefix: str, **_: Any) -> Completions:
        if prefix.startswith("dead-letter:"):
            return [f"dead-letter:{path}" for path in _paths(prefix.removeprefix("dead-letter:"))]
        before, comma, _last = prefix.rpartition(",")
        return [before + comma + value for value in values]

    return complete


def _paths(prefix: str, folders_only: bool = False) -> Iterator[str]:
    """Files that begin like this; folders end in a slash, so that one can go on."""
    head, tail = os.path.split(prefix)
    with contextlib.suppress(OSError), os.scandir(os.path.expanduser(head) or ".") as entries:
        for entry in sorted(entries, key=lambda each: each.name):
            hidden = entry.name.startswith(".") and not tail.startswith(".")
            if hidden or not entry.name.startswith(tail):
                continue
            if entry.is_dir():
                yield os.path.join(head, entry.name) + "/"
            elif not folders_only:
                yield os.path.join(head, entry.name)


def _files(prefix: str, **_: Any) -> Completions:
    return list(_paths(prefix))


def _folders(prefix: str, **_: Any) -> Completions:
    return list(_paths(prefix, folders_only=True))


def _pattern(prefix: str, **_: Any) -> Completions:
    """`--filter @FILE`."""
    return [f"@{path}" for path in _paths(prefix.removeprefix("@"))] if prefix[:1] == "@" else ["@"]


def _functions(separator: str) -> Callable[..., Completions]:
    """`app.changes:handle`: modules of the folder one works in, read without being run."""

    def complete(prefix: str, **_: Any) -> Completions:
        if ":" in prefix:
            module = prefix.partition(":")[0]
            return [f"{module}:{name}" for name in _defined(module)]
        package = prefix.rpartition(".")[0]
        found = [package + "." + name if package else name for name in _modules(package)]
        if separator == "." and package:
            found += [f"{package}.{name}" for name in _defined(package)]
        ends = [f"{name}{separator}" for name in found if _file(name)]
        return ends if separator == ":" else [*ends, *(name for name in found if not _file(name))]

    return complete


def _file(module: str) -> Path | None:
    path = Path(*module.split("."))
    places = (path.with_suffix(".py"), path / "__init__.py")
    return next((place for place in places if place.is_file()), None)


def _modules(package: str) -> Iterator[str]:
    folder = Path(*package.split(".")) if package else Path()
    if folder.is_dir():
        for path in sorted(folder.iterdir()):
            if path.stem.isidentifier() and (
                path.suffix == ".py" or (path / "__init__.py").exists()
            ):
                yield path.stem


def _defined(module: str) -> list[str]:
    """The public functions of a module."""
    file = _file(module)
    try:
        tree = ast.parse(file.read_bytes()) if file else ast.Module([], [])
    except (OSError, SyntaxError, ValueError):
        return []
    names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    return [name for name in names if not name.startswith("_")]


def _profiles(**_: Any) -> Completions:
    """From the files of the aws CLI."""
    names: list[str] = []
    for variable, place in (
        ("AWS_CONFIG_FILE", "~/.aws/config"),
        ("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"),
    ):
        parser = configparser.RawConfigParser(strict=False)
        with contextlib.suppress(configparser.Error, OSError, UnicodeDecodeError):
            parser.read(os.path.expanduser(os.environ.get(variable) or place))
        plain = [name for name in parser.sections() if " " not in name]
        names += [*plain, *(n.removeprefix("profile ") for n in parser.sections() if " " in n)]
    return [name for name in dict.fromkeys(names) if " " not in name]


def _regions(**_: Any) -> Completions:
    """From botocore's list, which is read without importing it."""
    spec = importlib.util.find_spec("botocore")
    if spec is None or spec.origin is None:
        return ()
    try:
        text = Path(spec.origin).with_name("data").joinpath("partitions.json").read_text("utf-8")
    except OSError:
        return ()
    parts = json.loads(text)["partitions"]
    return [name for part in parts for name in part["regions"] if "global" not in name]


_BY_OPTION: dict[str, Callable[..., Completions]] = {
    "--call": _functions(":"),
    "--lambda": _functions("."),
    "--profile": _profiles,
    "--region": _regions,
    "--to-region": _regions,
    "--filter": _pattern,
}
_BY_METAVAR: dict[str, Callable[..., Completions]] = {
    "FILE": _files,
    "PATH": _files,
    "DIR": _folders,
    "STREAM|ARCHIVE": _files,
}
