"""`completion`: a shell completes commands, options and values, by argcomplete; without boto3."""

from __future__ import annotations

import os
import sys
from argparse import Action
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from argcomplete.finders import CompletionFinder
from argcomplete.lexers import split_line
from argcomplete.shell_integration import shellcode

from watcher.cli.command_line import COMMANDS, TOPICS, CommandLine, command_line, parameters
from watcher.cli.options import Command, with_options
from watcher.cli.parser import parser
from watcher.declared import Opt
from watcher.errors import WatcherError

_COMMAND = "COMMAND"

_Shell = Annotated[str, Opt("bash (default), zsh or fish", choices=("bash", "zsh", "fish"))]


def completion_command(line: CommandLine) -> Command:
    """Prints a shell's script."""
    return with_options(_print_script)


def _print_script(shell: _Shell = "bash", /, **_: object) -> int:
    print(shellcode(["watcher"], shell=shell))
    return 0


def answer() -> None:
    """Answers a TAB, about which argcomplete's script sets variables, and ends the process."""
    *_, words, _ = split_line(os.environ["COMP_LINE"], int(os.environ["COMP_POINT"]))
    line = command_line(words[int(os.environ["_ARGCOMPLETE"]) :])
    try:
        known = parameters(line)
    except WatcherError:  # a folder of handlers that is not there
        known = parameters(CommandLine(line.name))
    choices = {each.name: each.declared.choices for each in known}
    choices |= {"help": TOPICS, "topic": (*COMMANDS, *TOPICS)}

    def complete(action: Action, **_: object) -> Iterable[str] | Mapping[str, str]:
        if action.dest == _COMMAND:
            return {name: command.summary for name, command in COMMANDS.items()}
        return choices[action.dest]

    made = parser(each for each in known if not each.is_operand)
    if line.is_named or not line.words:
        made.add_argument(_COMMAND)
    for each in known:
        if each.is_operand:
            made.add_argument(each.name, nargs="*" if each.is_repeated else "?")
    finder: Any = CompletionFinder()
    finder(made, always_complete_options=False, exit_method=sys.exit, default_completer=complete)
