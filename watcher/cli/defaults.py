"""Values that the command line does not give: from the environment and from TOML files."""

from __future__ import annotations

import contextlib
import difflib
import functools
import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from cyclopts import App, Argument, ArgumentCollection, Token

from watcher.errors import UsageError

logger = logging.getLogger("watcher")

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
        for default in found.values():
            argument = names[default.key]
            tokens = list(_tokens(argument, default))
            if tokens and not argument.has_tokens:
                for token in tokens:
                    argument.append(token)
                self.origins[argument.field_info.name] = default.origin

    def _written(self, command: str) -> Iterator[Default]:
        """All defaults for a command; a later one is to win over an earlier one."""
        for file in _files():
            try:
                table = _table(file)
            except UsageError:
                if self._others is None:
                    continue
                raise
            for key, value in table.items():
                if not isinstance(value, dict):
                    yield Default(key, value, str(file), False)
                elif key not in self._commands and self._others is not None:
                    near = _near(key, self._commands)
                    raise UsageError(f"{file}: [{key}] is no command{near}")
            for key, value in table.get(command, {}).items():
                yield Default(key, value, f"[{command}] in {file}", True)
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
    places = [os.path.join(home, "watcher", "config.toml"), "watcher.toml"]
    return [Path(place) for place in places if os.path.isfile(place)]


@functools.cache
def _table(file: Path) -> dict[str, Any]:
    import tomllib  # not where there is none

    try:
        return tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        raise UsageError(f"can't read {file}: {error.strerror}") from None
    except ValueError as error:  # TOMLDecodeError, and text that is not UTF-8
        raise UsageError(f"{file} is not TOML: {error}") from None


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
