"""Reads options' defaults from the environment and from the user's TOML file."""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

from watcher.cli.options import Option, Value
from watcher.errors import UsageError, did_you_mean

logger = logging.getLogger("watcher")

_PREFIX = "WATCHER_"
# Not options: the file to read, the environment that scripts/ make, a key for no command line.
_OTHER_VARIABLES = ("config", "venv", "redact-key")
# Nor are these anybody's defaults.
_ONLY_TYPED = ("help", "version")
_WORDS = dict.fromkeys(("1", "true", "yes", "on"), True)
_WORDS |= dict.fromkeys(("0", "false", "no", "off"), False)


class Default(NamedTuple):
    """One option's default, as a variable or a file gives it."""

    key: str
    value: Any
    origin: str
    """The variable, or the file."""
    kind: Literal["variable", "file", "table"]
    """`table` is the part of the file that is for one command."""

    @property
    def where(self) -> str:
        """The variable, or the file with the key."""
        return self.origin if self.kind == "variable" else f"{self.origin}: {self.key}"


class PeekedOption(NamedTuple):
    """An option's texts, from the command line or from a default."""

    texts: Sequence[str] = ()
    origin: str | None = None
    """The file or the variable that they are from; None: the line."""

    @property
    def last(self) -> str | None:
        """The text that counts if the option takes one value."""
        return self.texts[-1] if self.texts else None


class Defaults:
    """Gives the values of options that the command line leaves out.

    `commands` are the tables that a file may have. `others` returns the options of all commands,
    or None if they are unknown.
    """

    def __init__(
        self, command: str, commands: Iterable[str], others: Callable[[], set[str] | None]
    ) -> None:
        self._command = command
        self._commands = commands
        self._others = others
        self.origins: dict[str, str] = {}
        """The parameters that have got a value here, and where it is written."""

    def values(self, options: Sequence[Option], typed: Container[str]) -> dict[str, Any]:
        """Returns the values of options that the line has not `typed`. Raises UsageError."""
        names = {key: each for each in options for key in _keys(each)}
        found: dict[str, Default] = {}
        for default in (*self._of_file(), *_of_environment()):
            if default.key in names:
                # One option under two names (follow, no-follow) has one default.
                found[names[default.key].name] = default
            else:
                self._refuse_unknown(default, names)
        values = {}
        for name, default in found.items():
            value = _value(names[default.key], default)
            if value != [] and name not in typed:
                values[name], self.origins[name] = value, default.origin
        return values

    def peek(self, key: str) -> PeekedOption:
        """Returns an option's texts before the parse, which reports mistakes, and their source."""
        written = [*_of_environment()]
        with contextlib.suppress(UsageError):
            written[:0] = self._of_file()
        for each in reversed(written):
            if each.key == key:
                return PeekedOption(_several(each.value), each.origin)
        return PeekedOption()

    def _of_file(self) -> list[Default]:
        """Returns the file's values: those for all commands, then this one's. Raises UsageError."""
        if (file := _file()) is None:
            return []
        table = _table(file)
        for key, value in table.items():
            if isinstance(value, dict) and key not in self._commands:
                raise UsageError(
                    f"{file}: [{key}] is no command{did_you_mean(key, self._commands)}"
                )
        own, where = table.get(self._command, {}), f"[{self._command}] in {file}"
        return [
            *(
                Default(key, value, file, "file")
                for key, value in table.items()
                if not isinstance(value, dict)
            ),
            *(Default(key, value, where, "table") for key, value in own.items()),
        ]

    def _refuse_unknown(self, default: Default, names: Iterable[str]) -> None:
        """Raises for an option that no command has; other programs have WATCHER_ variables too."""
        advice = did_you_mean(default.key, names)
        if default.kind == "table":
            raise UsageError(f"{default.origin}: no option {default.key}{advice}")
        if default.kind == "variable" and not advice:
            return
        everywhere = self._others()
        if everywhere is None or default.key in everywhere:
            return
        if default.kind == "file":
            advice = did_you_mean(default.key, everywhere)
            raise UsageError(f"{default.origin}: no option {default.key}{advice}")
        logger.warning(f"{default.origin} sets no option{advice}")


def _keys(option: Option) -> list[str]:
    """Returns an option's names as files and variables have them: without dashes."""
    names = [*option.names, *option.negatives] if option.name not in _ONLY_TYPED else ()
    return [name[2:] for name in names if name.startswith("--")]


def _file() -> str | None:
    if chosen := os.environ.get("WATCHER_CONFIG"):
        return chosen
    # A user may have no home, or be kept out of it.
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    path = os.path.join(home, "watcher", "config.toml")
    return path if os.path.isfile(path) else None


def _of_environment() -> Iterator[Default]:
    for name, text in os.environ.items():
        if name.startswith(_PREFIX) and text:
            key = name.removeprefix(_PREFIX).lower().replace("_", "-")
            if key not in _OTHER_VARIABLES:
                yield Default(key, text, name, "variable")


def _table(file: str) -> dict[str, Any]:
    import tomllib  # not where there is none

    try:
        with open(file, "rb") as opened:
            return tomllib.load(opened)
    except OSError as error:
        raise UsageError(f"can't read {file}: {error.strerror}") from None
    except ValueError as error:  # TOMLDecodeError, and text that is not UTF-8
        raise UsageError(f"{file} is not TOML: {error}") from None


def _value(option: Option, default: Default) -> Value:
    """Returns the value that a default gives an option. Raises UsageError."""
    value, where = default.value, default.where
    if option.is_switch:
        is_variable = default.kind == "variable"
        on = _WORDS.get(str(value).lower()) if is_variable else value
        if not isinstance(on, bool):
            either = "1 or 0" if is_variable else "true or false"
            raise UsageError(f"{where}: {value!r}: give {either}")
        return on is (f"--{default.key}" not in option.negatives)
    if option.kind is list:
        return _several(value)
    if isinstance(value, bool | list | dict):
        raise UsageError(f"{where}: {value!r}: give one value, such as a text in quotes")
    return option.read(str(value), f"{where}: {str(value)!r}")


def _several(value: object) -> list[str]:
    """Returns the values of an option that can be repeated: a list, or a line each."""
    several: Any = value
    if isinstance(value, str) and value.lstrip().startswith("["):
        with contextlib.suppress(ValueError):
            several = json.loads(value)
    return list(map(str, several)) if isinstance(several, list) else str(value).splitlines()
