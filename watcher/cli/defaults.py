"""Defaults for options, from the environment and from TOML files."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import functools
import json
import logging
import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from watcher import cli
from watcher.errors import UsageError

if TYPE_CHECKING:
    from watcher.cli.options import Parser

logger = logging.getLogger("watcher")

_PREFIX = "WATCHER_"
# Not options: the file to read, and the environment that scripts/ make.
_OTHER_VARIABLES = {"config", "venv"}
_NEAR = 0.75
_WORDS = {"1": True, "true": True, "yes": True, "on": True}
_WORDS |= {"0": False, "false": False, "no": False, "off": False}
_KINDS = {int: "a whole number", float: "a number"}


class Default(NamedTuple):
    """One option's default as it is written somewhere."""

    key: str
    value: Any
    origin: str
    """The variable, or the file with the key."""
    required: bool
    """Whether it is an error that this command has no such option."""


class Use(NamedTuple):
    """A default that this run goes by."""

    dest: str
    flag: str
    text: str
    origin: str


in_use: list[Use] = []
"""Those of this process, for its error messages."""


def fill(parser: Parser, parsed: argparse.Namespace) -> None:
    """Put defaults where the command line has said nothing. Raises UsageError, as `values`."""
    for dest, value in values(parser).items():
        if getattr(parsed, dest) is None:
            setattr(parsed, dest, value)
            of(parsed).add(dest)
    in_use[:] = [use for use in in_use if use.dest in of(parsed)]


def of(parsed: argparse.Namespace) -> set[str]:
    """The names of what was parsed that are defaults of a file or the environment."""
    names: set[str] = parsed.__dict__.setdefault("from defaults", set())
    return names


def values(parser: Parser) -> dict[str, Any]:
    """The defaults of a parser's options by their `dest`.

    Raises UsageError for what can't be used; it names the variable, or the file and the key.
    """
    keys = parser.keys()
    found: dict[str, Default] = {}
    for default in _written(parser.command):
        action = keys.get(default.key)
        if action is None:
            _refuse_unknown(default, keys)
            continue
        # One option under two names (follow, no-follow) has one default.
        found[action.option_strings[0]] = default
    made: dict[str, Any] = {}
    in_use.clear()
    for default in found.values():
        action = keys[default.key]
        value = _converted(action, default)
        if isinstance(value, list):  # handlers are chosen by several options
            made[action.dest] = [*made.get(action.dest, []), *value]
        else:
            made[action.dest] = value
        text = "" if action.nargs == 0 else str(default.value)
        in_use.append(Use(action.dest, f"--{default.key}", text, default.origin))
    return {dest: value for dest, value in made.items() if value != []}


def raw(command: str, key: str) -> Any:
    """The default of an option that is needed before the others can be parsed."""
    if text := os.environ.get(_PREFIX + key.upper().replace("-", "_")):
        return text
    with contextlib.suppress(UsageError):  # the parsing will say it
        for default in reversed(list(_written(command))):
            if default.key == key:
                return default.value
    return None


def lines(value: Any) -> list[str]:
    """The values of an option that can be repeated: a list, or a line each."""
    several: Any = value
    if isinstance(value, str) and value.lstrip().startswith("["):
        with contextlib.suppress(ValueError):
            several = json.loads(value)
    return list(map(str, several)) if isinstance(several, list) else str(value).splitlines()


def explained(message: str) -> str:
    """An error's text, with where a value that it speaks of comes from."""
    for use in in_use:
        about = [use.flag, *([use.text] if len(use.text) > 2 else [])]
        if any(re.search(rf"(?<![\w-]){re.escape(each)}(?![\w-])", message) for each in about):
            return f"{message} ({use.flag} is from {use.origin})"
    return message


def _written(command: str) -> Iterator[Default]:
    """All defaults for a command; a later one is to win over an earlier one."""
    for file in _files():
        yield from _in_file(file, command)
    for name, text in os.environ.items():
        if name.startswith(_PREFIX) and text:
            key = name.removeprefix(_PREFIX).lower().replace("_", "-")
            if key not in _OTHER_VARIABLES:
                yield Default(key, text, name, False)


def _files() -> list[Path]:
    if chosen := os.environ.get("WATCHER_CONFIG"):
        return [Path(chosen)]
    # Neither is Path's: a user may have no home, or be kept out of it.
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    places = [os.path.join(home, "watcher", "config.toml"), "watcher.toml"]
    return [Path(place) for place in places if os.path.isfile(place)]


@functools.cache
def _table(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        raise UsageError(f"can't read {file}: {error.strerror}") from None
    except ValueError as error:  # TOMLDecodeError, and text that is not UTF-8
        raise UsageError(f"{file} is not TOML: {error}") from None


def _in_file(file: Path, command: str) -> Iterator[Default]:
    table = _table(file)
    for key, value in table.items():
        if not isinstance(value, dict):
            yield Default(key, value, str(file), False)
        elif key not in cli.COMMANDS:
            raise UsageError(f"{file}: [{key}] is no command{_near(key, cli.COMMANDS)}")
    for key, value in table.get(command, {}).items():
        yield Default(key, value, f"[{command}] in {file}", True)


def _refuse_unknown(default: Default, keys: dict[str, argparse.Action]) -> None:
    """What no command has is a mistake in a file; in the environment, others have variables too."""
    if default.required:
        raise UsageError(f"{default.origin}: no option {default.key}{_near(default.key, keys)}")
    variable = default.origin.startswith(_PREFIX)
    if variable and not difflib.get_close_matches(default.key, keys, 1, _NEAR):
        return
    everywhere = set(keys)
    try:
        for name in cli.COMMANDS:
            everywhere |= _keys(name)
            if default.key in everywhere:
                return
    except UsageError:  # without Spark, nobody knows the options of its commands
        return
    if not variable:
        advice = _near(default.key, everywhere)
        raise UsageError(f"{default.origin}: no option {default.key}{advice}")
    (near,) = difflib.get_close_matches(default.key, keys, 1, _NEAR)
    name = _PREFIX + near.upper().replace("-", "_")
    logger.warning(f"{default.origin} is no option's variable; did you mean {name}?")


@functools.cache
def _keys(command: str) -> set[str]:
    return set(cli.command(command).parser([]).keys())


def _near(word: str, words: Any) -> str:
    near = difflib.get_close_matches(word, list(words), 1)
    return f"; did you mean {near[0]}?" if near else ""


def _converted(action: argparse.Action, default: Default) -> Any:
    """The value as the command line would have made it. Raises UsageError."""
    where = default.origin
    if not where.startswith(_PREFIX):
        where += f": {default.key}"
    if action.nargs == 0:
        on = default.value
        if where.startswith(_PREFIX):
            on = _WORDS.get(str(on).lower())
        if not isinstance(on, bool):
            either = "1 or 0" if where.startswith(_PREFIX) else "true or false"
            raise UsageError(f"{where}: {default.value!r}: give {either}")
        if isinstance(action, argparse._AppendConstAction):
            return [action.const] if on else []
        return on == (action.on if f"--{default.key}" in action.shown else not action.on)  # type: ignore[attr-defined]
    if isinstance(action, argparse._AppendAction):
        return [_typed(action, text, where) for text in lines(default.value)]
    if isinstance(default.value, bool | list | dict):
        raise UsageError(f"{where}: {default.value!r}: give one value, such as a text in quotes")
    return _typed(action, str(default.value), where)


def _typed(action: argparse.Action, text: str, where: str) -> Any:
    if action.choices is not None and text not in action.choices:
        raise UsageError(f"{where}: {text!r}: use {' or '.join(map(str, action.choices))}")
    make: Any = action.type or str
    try:
        return make(text)
    except ValueError:
        what = _KINDS.get(make, "what it can be")
        raise UsageError(f"{where}: {text!r} is not {what}") from None
