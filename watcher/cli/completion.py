"""`completion`: what makes a shell complete commands and options, by argcomplete."""

from __future__ import annotations

import os
import sys
from argparse import Action
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any

from argcomplete.finders import CompletionFinder
from argcomplete.lexers import split_line
from argcomplete.shell_integration import shellcode

from watcher.cli.command_line import COMMANDS, CommandLine, command_line, parameters
from watcher.cli.options import declaration, is_operand
from watcher.cli.parser import parser
from watcher.declared import Opt
from watcher.errors import WatcherError

_BREAKS = "_ARGCOMPLETE_COMP_WORDBREAKS"
_COMMAND = "COMMAND"

_Shell = Annotated[str, Opt("bash (default), zsh or fish", choices=("bash", "zsh", "fish"))]


def completion_command(line: CommandLine) -> Callable[..., int]:
    """Prints a shell's script."""

    def run(shell: _Shell = "bash", /) -> int:
        print(shellcode(["watcher"], use_defaults=False, shell=shell))
        return 0

    return run


def answer() -> None:
    """Answers a TAB, about which argcomplete's script sets variables, and ends the process."""
    # Bash breaks words at an @, too, but keeps what stands before it.
    breaks = os.environ.get(_BREAKS, "")
    os.environ[_BREAKS] = breaks.replace("@", "")
    *_, words, _ = split_line(os.environ["COMP_LINE"], int(os.environ["COMP_POINT"]))
    line = command_line(words[int(os.environ["_ARGCOMPLETE"]) :])
    try:
        known = parameters(line)
    except WatcherError:  # a folder of handlers that is not there
        known = parameters(CommandLine(line.name))
    declared = {each.name: declaration(each) for each in known}

    def complete(prefix: str, action: Action, **_: object) -> Iterable[str] | Mapping[str, str]:
        if action.dest == _COMMAND:
            return {name: command.summary for name, command in COMMANDS.items()}
        found = declared[action.dest]
        return found.completer(prefix) if found.completer else found.choices or ()

    made = parser(each for each in known if not is_operand(each))
    if line.is_named or not line.words:
        made.add_argument(_COMMAND)
    for each in filter(is_operand, known):
        made.add_argument(each.name, nargs="*" if each.kind is each.VAR_POSITIONAL else "?")
    finder: Any = CompletionFinder()
    finder(made, always_complete_options=False, exit_method=sys.exit, default_completer=complete)
