"""Values that the command line does not give: from the environment and from TOML files."""

from __future__ import annotations

import contextlib
import difflib
import functools
import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from cyclopts import App, Argument, ArgumentCollection, Token

from watcher.cli import trusted
from watcher.errors import UsageError

logger = logging.getLogger("watcher")

PROJECT_FILE = "watcher.toml"
"""The file of the working folder; anybody may have put it there."""
Table: TypeAlias = dict[str, Any]

_PREFIX = "WATCHER_"
# Not options: the file to read, and the environment that scripts/ make.
_OTHER_VARIABLES = {"config", "venv"}
# Nor are these anybody's defaults.
_ONLY_TYPED = {"help", "version"}
_NEAR = 0.75
_WORDS = {"1": True, "true": True, "yes": True, "on": True}
_WORDS |= {"0": False, "false": False, "no": False, "off": False}


class Default(NamedTuple):
    """One option's default as it is written somewhere."""

    key: str
    value: Any
    origin: str
    """The variable, or the file."""
    required: bool
    """Whether it is an error that this command has no such option."""
    is_strange: bool = False
    """Whether it is of a file that nobody has said to be trusted."""

    @property
    def variable(self) -> bool:
        """Whether it is one of the environment."""
        return self.origin.startswith(_PREFIX)

    @property
    def where(self) -> str:
        """The variable, or the file with the key."""
        return self.origin if self.variable else f"{self.origin}: {self.key}"


class Defaults:
    """Where Cyclopts takes values from when the command line has said its own.

    `commands` are those that files may have a table for. `others` answers the options of all of
    them, or None where nobody knows; without it, what is wrong elsewhere is passed over.
    """

    def __init__(
        self, commands: Iterable[str], others: Callable[[], set[str] | None] | None = None
    ) -> None:
        self._commands = commands
        self._others = others
        self.origins: dict[str, str] = {}
        """The parameters that have got a value here, and where it is written."""
        self.of_folder: list[str] = []
        """The options that the working folder's file gives, as it calls them."""
        self.strange: list[str] = []
        """The parameters that it gives without being trusted."""

    def __call__(self, app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
        """Give the arguments of a command that have no value one. Raises UsageError."""
        names = keys(arguments)
        found: dict[str, Default] = {}
        for default in self._written(commands[0]):
            if default.key in names:
                # One option under two names (follow, no-follow) has one default.
                found[names[default.key].name] = default
            elif self._others is not None:
                self._refuse_unknown(default, names, self._others)
        refused = []
        for default in found.values():
            argument = names[default.key]
            tokens = list(_tokens(argument, default))
            if not tokens or argument.has_tokens:
                continue
            metavar = None if argument.is_flag() else argument.parameter.metavar
            if default.is_strange and not trusted.is_harmless(metavar, default.value):
                refused.append(default.key)
                continue
            for token in tokens:
                argument.append(token)
            self._took(argument.field_info.name, default)
        if refused and self._others is not None:
            raise not_trusted(refused)

    def _took(self, name: str, default: Default) -> None:
        self.origins[name] = default.origin
        if default.origin.endswith(PROJECT_FILE) and not os.environ.get("WATCHER_CONFIG"):
            self.of_folder.append(default.key)
        if default.is_strange:
            self.strange.append(name)

    def _written(self, command: str) -> Iterator[Default]:
        """All defaults for a command; a later one is to win over an earlier one."""
        for file in _files():
            try:
                table, is_strange = _known(file)
            except UsageError:
                if self._others is None:
                    continue
                raise
            for key, value in table.items():
                if not isinstance(value, dict):
                    yield Default(key, value, str(file), False, is_strange)
                elif key not in self._commands and self._others is not None:
                    near = _near(key, self._commands)
                    raise UsageError(f"{file}: [{key}] is no command{near}")
            for key, value in table.get(command, {}).items():
                yield Default(key, value, f"[{command}] in {file}", True, is_strange)
        for name, text in os.environ.items():
            if name.startswith(_PREFIX) and text:
                key = name.removeprefix(_PREFIX).lower().replace("_", "-")
                if key not in _OTHER_VARIABLES:
                    yield Default(key, text, name, False)

    def _refuse_unknown(
        self, default: Default, names: Iterable[str], others: Callable[[], set[str] | None]
    ) -> None:
        """What no command has is a mistake in a file; others have variables in the environment."""
        near = difflib.get_close_matches(default.key, list(names), 1, _NEAR)
        if default.required:
            raise UsageError(
                f"{default.origin}: no option {default.key}{_near(default.key, names)}"
            )
        if default.variable and not near:
            return
        everywhere = others()
        if everywhere is None or default.key in everywhere:
            return
        if not default.variable:
            advice = _near(default.key, everywhere)
            raise UsageError(f"{default.origin}: no option {default.key}{advice}")
        name = _PREFIX + near[0].upper().replace("-", "_")
        logger.warning(f"{default.origin} is no option's variable; did you mean {name}?")


def keys(arguments: ArgumentCollection) -> dict[str, Argument]:
    """The options by their names without dashes, as files and the environment have them."""
    names = {
        name[2:]: argument
        for argument in arguments.filter_by(parse=True)
        for name in argument.names
        if name.startswith("--")
    }
    return {name: argument for name, argument in names.items() if name not in _ONLY_TYPED}


def _files() -> list[Path]:
    if chosen := os.environ.get("WATCHER_CONFIG"):
        return [Path(chosen)]
    # Neither is Path's: a user may have no home, or be kept out of it.
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    places = [os.path.join(home, "watcher", "config.toml"), PROJECT_FILE]
    return [Path(place) for place in places if os.path.isfile(place)]


@functools.cache
def _known(file: Path) -> tuple[Table, bool]:
    """What a file says, and whether nobody has said that it is to be trusted."""
    content = read(file)
    is_strange = str(file) == PROJECT_FILE and not (
        os.environ.get("WATCHER_CONFIG") or trusted.is_trusted(file, content)
    )
    return table(file, content), is_strange


def read(file: Path) -> bytes:
    """A file's content. Raises UsageError."""
    try:
        return file.read_bytes()
    except OSError as error:
        raise UsageError(f"can't read {file}: {error.strerror}") from None


def table(file: Path, content: bytes) -> Table:
    """What it says. Raises UsageError."""
    import tomllib  # not where there is none

    try:
        return tomllib.loads(content.decode())
    except ValueError as error:  # TOMLDecodeError, and text that is not UTF-8
        raise UsageError(f"{file} is not TOML: {error}") from None


def not_trusted(keys: Sequence[str]) -> UsageError:
    """The folder's file sets what may run code, write files or send data elsewhere."""
    return UsageError(
        f"{PROJECT_FILE} in this folder sets {' and '.join(keys)}: look into it, and allow it by "
        "`python -m watcher trust`, or leave it out by WATCHER_CONFIG=/dev/null"
    )


def _near(word: str, words: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, list(words), 1)
    return f"; did you mean {near[0]}?" if near else ""


def _tokens(argument: Argument, default: Default) -> Iterator[Token]:
    """The value as the command line would have given it. Raises UsageError."""
    value, where = default.value, default.where
    if argument.is_flag():
        on = _WORDS.get(str(value).lower()) if default.variable else value
        if not isinstance(on, bool):
            either = "1 or 0" if default.variable else "true or false"
            raise UsageError(f"{where}: {value!r}: give {either}")
        meant = on is (f"--{default.key}" not in argument.negatives)
        yield Token(keyword=default.key, source=where, implicit_value=meant)
    elif argument.token_count()[1]:
        for index, text in enumerate(_several(value)):
            yield Token(keyword=default.key, value=text, source=where, index=index)
    elif isinstance(value, bool | list | dict):
        raise UsageError(f"{where}: {value!r}: give one value, such as a text in quotes")
    else:
        yield Token(keyword=default.key, value=str(value), source=where)


def _several(value: Any) -> list[str]:
    """The values of an option that can be repeated: a list, or a line each."""
    several: Any = value
    if isinstance(value, str) and value.lstrip().startswith("["):
        with contextlib.suppress(ValueError):
            several = json.loads(value)
    return list(map(str, several)) if isinstance(several, list) else str(value).splitlines()
