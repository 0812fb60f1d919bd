"""Reads options' defaults from the environment and from the user's TOML file."""

from __future__ import annotations

import contextlib
import difflib
import json
import logging
import os
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from watcher.cli.options import (
    Value,
    is_switch,
    kind_of,
    names_of,
    negatives_of,
    read_value,
)
from watcher.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from inspect import Parameter as Option

Table: TypeAlias = dict[str, Any]

logger = logging.getLogger("watcher")

_PREFIX = "WATCHER_"
# Not options: the file to read, the environment that scripts/ make, a key for no command line.
_OTHER_VARIABLES = {"config", "venv", "redact-key"}
# Nor are these anybody's defaults.
_ONLY_TYPED = {"help", "version"}
_NEAR = 0.75
_WORDS = {"1": True, "true": True, "yes": True, "on": True}
_WORDS |= {"0": False, "false": False, "no": False, "off": False}


class Default(NamedTuple):
    """One option's default, as a variable or a file gives it."""

    key: str
    value: Any
    origin: str
    """The variable, or the file."""
    required: bool
    """True where it is an error that this command has no such option."""

    @property
    def variable(self) -> bool:
        """True for a variable of the environment."""
        return self.origin.startswith(_PREFIX)

    @property
    def where(self) -> str:
        """Returns the variable, or the file with the key."""
        return self.origin if self.variable else f"{self.origin}: {self.key}"


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
        self._read: list[Default] | None = None
        self._mistake: UsageError | None = None
        self.origins: dict[str, str] = {}
        """The parameters that have got a value here, and where it is written."""

    def values(self, options: Sequence[Option], typed: Container[str]) -> dict[str, Any]:
        """Returns the values of options that the line has not `typed`. Raises UsageError."""
        names = {key: each for each in options for key in _keys(each)}
        found: dict[str, Default] = {}
        written = self._written()
        if self._mistake is not None:
            raise self._mistake
        for default in written:
            if default.key in names:
                # One option under two names (follow, no-follow) has one default.
                found[names[default.key].name] = default
            else:
                self._refuse_unknown(default, names)
        values = {}
        for name, default in found.items():
            value = _value(names[default.key], default)
            if value == [] or name in typed:
                continue
            values[name] = value
            self.origins[name] = default.origin
        return values

    def peek(self, key: str) -> PeekedOption:
        """Returns an option's texts before the parse, and their source.

        The parse reports mistakes.
        """
        written = [each for each in self._written() if each.key == key]
        if not written:
            return PeekedOption()
        last = written[-1]
        return PeekedOption(_several(last.value), last.origin)

    def _written(self) -> list[Default]:
        """Returns all defaults for the command; the last one for an option counts."""
        if self._read is None:
            self._read = []
            try:
                self._read.extend(self._of_file())
            except UsageError as error:
                self._mistake = error
            self._read.extend(_of_environment())
        return self._read

    def _of_file(self) -> Iterator[Default]:
        if (file := _file()) is None:
            return
        table = _table(file)
        for key, value in table.items():
            if not isinstance(value, dict):
                yield Default(key, value, str(file), False)
        for key, value in table.get(self._command, {}).items():
            yield Default(key, value, f"[{self._command}] in {file}", True)
        for key, value in table.items():
            if isinstance(value, dict) and key not in self._commands:
                raise UsageError(
                    f"{file}: [{key}] is no command{did_you_mean(key, self._commands)}"
                )

    def _refuse_unknown(self, default: Default, names: Iterable[str]) -> None:
        """Raises for an option that no command has; other programs have WATCHER_ variables too."""
        near = difflib.get_close_matches(default.key, list(names), 1, _NEAR)
        if default.required:
            raise UsageError(
                f"{default.origin}: no option {default.key}{did_you_mean(default.key, names)}"
            )
        if default.variable and not near:
            return
        everywhere = self._others()
        if everywhere is None or default.key in everywhere:
            return
        if not default.variable:
            advice = did_you_mean(default.key, everywhere)
            raise UsageError(f"{default.origin}: no option {default.key}{advice}")
        name = _PREFIX + near[0].upper().replace("-", "_")
        logger.warning(f"{default.origin} sets no option; did you mean {name}?")


def _keys(option: Option) -> list[str]:
    """Returns an option's names as files and variables have them: without dashes."""
    names = [*names_of(option), *negatives_of(option)] if option.name not in _ONLY_TYPED else ()
    return [name[2:] for name in names if name.startswith("--")]


def _file() -> Path | None:
    if chosen := os.environ.get("WATCHER_CONFIG"):
        return Path(chosen)
    # Neither is Path's: a user may have no home, or be kept out of it.
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    path = os.path.join(home, "watcher", "config.toml")
    return Path(path) if os.path.isfile(path) else None


def _of_environment() -> Iterator[Default]:
    for name, text in os.environ.items():
        if name.startswith(_PREFIX) and text:
            key = name.removeprefix(_PREFIX).lower().replace("_", "-")
            if key not in _OTHER_VARIABLES:
                yield Default(key, text, name, False)


def _table(file: Path) -> Table:
    import tomllib  # not where there is none

    try:
        return tomllib.loads(file.read_bytes().decode())
    except OSError as error:
        raise UsageError(f"can't read {file}: {error.strerror}") from None
    except ValueError as error:  # TOMLDecodeError, and text that is not UTF-8
        raise UsageError(f"{file} is not TOML: {error}") from None


def _value(option: Option, default: Default) -> Value:
    """Returns the value that a default gives an option. Raises UsageError."""
    value, where = default.value, default.where
    if is_switch(option):
        on = _WORDS.get(str(value).lower()) if default.variable else value
        if not isinstance(on, bool):
            either = "1 or 0" if default.variable else "true or false"
            raise UsageError(f"{where}: {value!r}: give {either}")
        return on is (f"--{default.key}" not in negatives_of(option))
    if kind_of(option) is list:
        return _several(value)
    if isinstance(value, bool | list | dict):
        raise UsageError(f"{where}: {value!r}: give one value, such as a text in quotes")
    return read_value(option, str(value), f"{where}: {str(value)!r}")


def _several(value: object) -> list[str]:
    """Returns the values of an option that can be repeated: a list, or a line each."""
    several: Any = value
    if isinstance(value, str) and value.lstrip().startswith("["):
        with contextlib.suppress(ValueError):
            several = json.loads(value)
    return list(map(str, several)) if isinstance(several, list) else str(value).splitlines()
