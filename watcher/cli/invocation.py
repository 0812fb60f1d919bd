"""Reads a command line once, and runs its command."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from watcher.cli import parser
from watcher.cli.command_line import COMMANDS, OF_ALL, CommandLine, command
from watcher.cli.defaults import Defaults
from watcher.cli.options import REQUIRED, Option, Origins
from watcher.cli.parser import Given
from watcher.errors import HandlerError, UsageError, WatcherError, blamed


class Invocation:
    """A command line that can be run, or asks for help. Raises UsageError for one that can't."""

    def __init__(self, line: CommandLine) -> None:
        self._command = command(line)
        self._options = {
            each.name: each for each in self._command.options if not each.is_operand
        } | {each.name: each for each in OF_ALL}
        options = list(self._options.values())
        given, rest, behind = parser.read(options, line.words)
        self.asked = {
            each.parameter: each.value for each in given if each.parameter in ("help", "version")
        }
        """`help` with its topic, and `version`, if the line asks for them."""
        self.values: dict[str, Any] = {each.name: each.default for each in options}
        """The options by their parameters' names."""
        self.origins = Origins([each.parameter for each in given], {})
        self.operands = [*rest, *behind]
        self._typed = {each.parameter: each.typed for each in given}
        if not self.asked:
            known = [name for each in options for name in (*each.names, *each.negatives)]
            parser.refuse_unknown(known, rest, () if line.is_named else COMMANDS)
            self._read_operands([each for each in self._command.options if each.is_operand])
            self._read_options(given, line.defaults if line.has_defaults else None)

    def _read_options(self, given: Sequence[Given], defaults: Defaults | None) -> None:
        """Sets the values of options, and raises UsageError for bad and missing ones."""
        typed: dict[str, Any] = {}
        for name, flag, value in given:
            option = self._options[name]
            if value == "":
                raise UsageError("it is empty: is a variable unset?", flag)
            if not option.is_switch:
                value = option.read(str(value), f"{flag} {value}")
            typed[name] = [*typed.get(name, ()), value] if option.kind is list else value
        if defaults is not None:
            self.values |= defaults.values([*self._options.values()], typed)
            self.origins = Origins(self.origins.typed, defaults.origins)
        self.values |= typed
        _refuse_missing(
            each for each in self._options.values() if self.values[each.name] is REQUIRED
        )

    def _read_operands(self, operands: Sequence[Option]) -> None:
        """Raises UsageError for too many operands or too few."""
        if "" in self.operands:
            raise UsageError("a word is empty: is a variable unset?")
        for text in self.operands:
            if text[:1] in ("'", '"') and text[:1] == text[-1:]:  # as `terraform output` prints it
                raise UsageError(f"{text} has quotes: leave them out")
        if len(self.operands) > len(operands) and not any(each.is_repeated for each in operands):
            raise UsageError(f"one word too many: {self.operands[len(operands)]}")
        for operand, text in zip(operands, self.operands, strict=False):
            operand.read(text, f"{operand.flags[0]} {text}")
        left = operands[len(self.operands) :]
        _refuse_missing(each for each in left if each.default is REQUIRED and not each.is_repeated)

    def run(self) -> int:
        """Calls the command; returns its exit status."""
        general = [each.name for each in OF_ALL]
        options = {name: value for name, value in self.values.items() if name not in general}
        return self._command.run(*self.operands, **options, origins=self.origins)

    def explain(self, error: WatcherError) -> str:
        """Returns an error's text with the options' names and the source of their values."""
        named = (error.option or "", *error.about, *self._naming(error))
        known = {each.name: each.shown[0] for each in (*self._command.options, *OF_ALL)}
        flags = {name: self._typed.get(name, known[name]) for name in named if name in known}
        origins = {flag: self.origins.defaults.get(name) for name, flag in flags.items()}
        return blamed(error, flags.get(error.option or "", error.option), origins)

    def _naming(self, error: WatcherError) -> list[str]:
        """Returns the options that chose the handler that failed."""
        handler = error.handler if isinstance(error, HandlerError) else None
        lists = (each for each in self.values.items() if isinstance(each[1], list))
        return [name for name, values in lists if handler in values]


def _refuse_missing(left: Iterable[Option]) -> None:
    if names := ", ".join(each.flags[0] for each in left):
        raise UsageError(f"the following arguments are required: {names}")
