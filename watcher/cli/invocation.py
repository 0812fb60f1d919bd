"""Reads a command line once, and runs its command."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import Parameter as Option
from typing import Any

from watcher.cli import parser
from watcher.cli.command_line import OF_ALL, CommandLine, command
from watcher.cli.defaults import Defaults
from watcher.cli.options import (
    Origins,
    declaration,
    flags_of,
    is_operand,
    is_switch,
    kind_of,
    read_value,
    shown_names,
)
from watcher.cli.parser import Given
from watcher.errors import HandlerError, UsageError, WatcherError, blamed


class Invocation:
    """A command line that can be run, or asks for help. Raises UsageError for one that can't."""

    def __init__(self, line: CommandLine) -> None:
        self._command, declared = command(line)
        self._known = {each.name: each for each in declared if declaration(each).parse}
        self._takes_origins = "origins" in {each.name for each in declared}
        options = [each for each in self._known.values() if not is_operand(each)]
        given, rest, behind = parser.read(options, line.words)
        self.asked = {
            each.parameter: each.value for each in given if each.parameter in ("help", "version")
        }
        """`help` with its topic, and `version`, if the line asks for them."""
        self.values: dict[str, Any] = {each.name: each.default for each in options}
        """The options by their parameters' names."""
        self.origins = Origins([each.parameter for each in given], {})
        self.operands = [*rest, *behind]
        if not self.asked:
            parser.refuse_unknown(options, rest)
            self._read_operands()
            self._read_options(given, line.defaults if line.has_defaults else None)

    def _read_options(self, given: Sequence[Given], defaults: Defaults | None) -> None:
        """Sets the values of options, and raises UsageError for bad and missing ones."""
        typed: dict[str, Any] = {}
        for name, flag, value in given:
            option = self._known[name]
            if not is_switch(option):
                value = read_value(option, str(value), f"{flag} {value}")
            typed[name] = [*typed.get(name, ()), value] if kind_of(option) is list else value
        if defaults is not None:
            options = [self._known[name] for name in self.values]
            self.values.update(defaults.values(options, typed))
            self.origins = Origins(self.origins.typed, defaults.origins)
        self.values.update(typed)
        missing = [name for name, value in self.values.items() if value is Option.empty]
        _refuse_missing([flags_of(self._known[name])[0] for name in missing])

    def _read_operands(self) -> None:
        """Raises UsageError for too many operands or too few."""
        operands = [each for each in self._known.values() if is_operand(each)]
        several = any(each.kind is each.VAR_POSITIONAL for each in operands)
        if len(self.operands) > len(operands) and not several:
            raise UsageError(f"one word too many: {self.operands[len(operands)]}")
        for operand, text in zip(operands, self.operands, strict=False):
            read_value(operand, text, f"{flags_of(operand)[0]} {text}")
        left = operands[len(self.operands) :]
        _refuse_missing(
            [
                flags_of(each)[0]
                for each in left
                if each.default is each.empty and each.kind is not each.VAR_POSITIONAL
            ]
        )

    def run(self) -> int:
        """Calls the command; returns its exit status."""
        general = [each.name for each in OF_ALL]
        options = {name: value for name, value in self.values.items() if name not in general}
        if self._takes_origins:
            options["origins"] = self.origins
        status: int = self._command(*self.operands, **options)
        return status

    def explain(self, error: WatcherError) -> str:
        """Returns an error's text with the options' names and the source of their values."""
        named = (error.option or "", *error.about, *self._naming(error))
        flags = {name: shown_names(self._known[name])[0] for name in named if name in self._known}
        origins = {flag: self.origins.defaults.get(name) for name, flag in flags.items()}
        return blamed(error, flags.get(error.option or "", error.option), origins)

    def _naming(self, error: WatcherError) -> list[str]:
        """Returns the options that chose the handler that failed."""
        handler = error.handler if isinstance(error, HandlerError) else None
        lists = (each for each in self.values.items() if isinstance(each[1], list))
        return [name for name, values in lists if handler in values]


def _refuse_missing(names: Sequence[str]) -> None:
    if names:
        raise UsageError(f"the following arguments are required: {', '.join(names)}")
