"""Reads options' defaults from the environment and from TOML files; keeps which files to trust."""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import json
import logging
import os
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from watcher.cli.options import (
    Value,
    declaration,
    is_switch,
    kind_of,
    names_of,
    negatives_of,
    read_value,
)
from watcher.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from inspect import Parameter as Option

PROJECT_FILE = "watcher.toml"
"""The file of the working folder; anybody may have put it there."""
Table: TypeAlias = dict[str, Any]

# Options by what their values are called: none of these runs, writes or reaches anything that the
# command would not. Of the others some do, as will some that are still to come; a profile is
# another account's, and may be one whose credentials a program gets.
_HARMLESS = {
    None,  # a switch
    "END",
    "ENGINE",
    "EXPR",
    "FORMAT",
    "HOW",
    "KINDS",
    "N",
    "NAME=VALUE",
    "PATTERN",
    "POLICY",
    "REGION",
    "SECONDS",
    "START",
    "TIME",
    "WHEN",
    "WORD",
}


def is_harmless(metavar: str | None, value: object) -> bool:
    """True for a value that needs no trust: it names no file, program or address."""
    texts = [str(each) for each in (value if isinstance(value, list) else [value])]
    named = any(text.startswith("@") or "dead-letter" in text for text in texts)
    return metavar in _HARMLESS and not named


def is_trusted(file: Path, content: bytes) -> bool:
    """True if the user trusts this file with this content."""
    return os.path.isfile(_note(file, content))  # not Path's: a user may be kept out of their home


def trust(file: Path, content: bytes) -> None:
    """Trusts this file until it changes. Raises UsageError."""
    note = _note(file, content)
    try:
        note.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        note.write_text(f"{file.resolve()}\n", "utf-8", "surrogateescape")
    except OSError as error:
        raise UsageError(f"can't write {note}: {error.strerror}") from None


def untrust(file: Path) -> int:
    """Removes the trust in all versions of this file; returns how many there were."""
    noted_path = f"{file.resolve()}\n"
    notes = [
        note
        for note in _folder().glob("*")
        if note.read_text("utf-8", "surrogateescape") == noted_path
    ]
    for note in notes:
        note.unlink(missing_ok=True)
    return len(notes)


def _note(file: Path, content: bytes) -> Path:
    """Returns the file that records the trust, named after the path and content, as direnv does."""
    digest = hashlib.sha256(os.fsencode(file.resolve()) + b"\n" + content)
    return _folder() / digest.hexdigest()


def _folder() -> Path:
    # Not Path's: a user may have no home.
    home = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    return Path(home, "watcher", "trusted")


def read(file: Path) -> bytes:
    """Returns a file's content. Raises UsageError."""
    try:
        return file.read_bytes()
    except OSError as error:
        raise UsageError(f"can't read {file}: {error.strerror}") from None


def table(file: Path, content: bytes) -> Table:
    """Returns the settings of a file of defaults. Raises UsageError."""
    import tomllib  # not where there is none

    try:
        return tomllib.loads(content.decode())
    except ValueError as error:  # TOMLDecodeError, and text that is not UTF-8
        raise UsageError(f"{file} is not TOML: {error}") from None


def not_trusted(keys: Sequence[str]) -> UsageError:
    """Returns the error for untrusted settings that run code, write files or reach addresses."""
    return UsageError(
        f"{PROJECT_FILE} in this folder sets {' and '.join(keys)}: look into it, and allow it by "
        "`python -m watcher trust`, or leave it out by WATCHER_CONFIG=/dev/null"
    )


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
    is_untrusted: bool = False
    """True where it is of a file that nobody has allowed everything."""

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
        self.of_folder: list[str] = []
        """The options that the working folder's file gives, as it calls them."""
        self.untrusted: list[str] = []
        """The parameters that it gives without being trusted."""

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
        refused, values = [], {}
        for name, default in found.items():
            option = names[default.key]
            value = _value(option, default)
            if value == [] or name in typed:
                continue
            metavar = None if is_switch(option) else declaration(option).metavar
            if default.is_untrusted and not is_harmless(metavar, default.value):
                refused.append(default.key)
                continue
            values[name] = value
            self._took(name, default)
        if refused:
            raise not_trusted(refused)
        return values

    def peek(self, key: str, metavar: str | None) -> PeekedOption:
        """Returns an option's texts before the parse, and their source.

        Returns none from an untrusted file; the parse reports that and other mistakes.
        """
        written = [each for each in self._written() if each.key == key]
        if not written:
            return PeekedOption()
        last = written[-1]
        if last.is_untrusted and not is_harmless(metavar, last.value):
            return PeekedOption()
        return PeekedOption(_several(last.value), last.origin)

    def _took(self, name: str, default: Default) -> None:
        self.origins[name] = default.origin
        if default.origin.endswith(PROJECT_FILE) and not os.environ.get("WATCHER_CONFIG"):
            self.of_folder.append(default.key)
        if default.is_untrusted:
            self.untrusted.append(name)

    def _written(self) -> list[Default]:
        """Returns all defaults for the command; the last one for an option counts."""
        if self._read is None:
            self._read = []
            for file in _files():
                try:
                    self._read.extend(self._of_file(file))
                except UsageError as error:
                    self._mistake = self._mistake or error
            self._read.extend(_of_environment())
        return self._read

    def _of_file(self, file: Path) -> Iterator[Default]:
        table, is_untrusted = _table(file)
        for key, value in table.items():
            if not isinstance(value, dict):
                yield Default(key, value, str(file), False, is_untrusted)
        for key, value in table.get(self._command, {}).items():
            yield Default(key, value, f"[{self._command}] in {file}", True, is_untrusted)
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


def _files() -> list[Path]:
    if chosen := os.environ.get("WATCHER_CONFIG"):
        return [Path(chosen)]
    # Neither is Path's: a user may have no home, or be kept out of it.
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    paths = [os.path.join(home, "watcher", "config.toml"), PROJECT_FILE]
    return [Path(path) for path in paths if os.path.isfile(path)]


def _of_environment() -> Iterator[Default]:
    for name, text in os.environ.items():
        if name.startswith(_PREFIX) and text:
            key = name.removeprefix(_PREFIX).lower().replace("_", "-")
            if key not in _OTHER_VARIABLES:
                yield Default(key, text, name, False)


def _table(file: Path) -> tuple[Table, bool]:
    """Returns a file's settings, and True if the user has not trusted the file."""
    content = read(file)
    is_untrusted = str(file) == PROJECT_FILE and not (
        os.environ.get("WATCHER_CONFIG") or is_trusted(file, content)
    )
    return table(file, content), is_untrusted


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
