"""`completion`: a shell completes commands, options and values, by argcomplete; without boto3."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from argparse import Action
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any

from argcomplete.finders import CompletionFinder
from argcomplete.lexers import split_line
from argcomplete.shell_integration import shellcode

from watcher.cli.command_line import COMMANDS, TOPICS, CommandLine, command_line, parameters
from watcher.cli.options import Command, Option, with_options
from watcher.cli.parser import parser
from watcher.declared import Opt
from watcher.errors import WatcherError

_BREAKS = "_ARGCOMPLETE_COMP_WORDBREAKS"
_COMMAND = "COMMAND"

_Shell = Annotated[str, Opt("bash (default), zsh or fish", choices=("bash", "zsh", "fish"))]


def completion_command(line: CommandLine) -> Command:
    """Prints a shell's script."""
    return with_options(_print_script)


def _print_script(shell: _Shell = "bash", /, **_: object) -> int:
    print(shellcode(["watcher"], use_defaults=False, shell=shell))
    return 0


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
    declared = {each.name: each for each in known}

    def complete(prefix: str, action: Action, **_: object) -> Iterable[str] | Mapping[str, str]:
        if action.dest == _COMMAND:
            return {name: command.summary for name, command in COMMANDS.items()}
        return complete_value(declared[action.dest], prefix)

    made = parser(each for each in known if not each.is_operand)
    if line.is_named or not line.words:
        made.add_argument(_COMMAND)
    for each in known:
        if each.is_operand:
            made.add_argument(each.name, nargs="*" if each.is_repeated else "?")
    finder: Any = CompletionFinder()
    finder(made, always_complete_options=False, exit_method=sys.exit, default_completer=complete)


# Values: those that begin otherwise than what is typed are left out


def complete_value(option: Option, begun: str) -> Iterable[str]:
    """Returns values of an option for what is typed of one."""
    what = option.declared.metavar or option.flags[0]
    completer = _COMPLETERS.get(option.name) or _COMPLETERS.get(what)
    if completer is None:
        return _files(begun) if _FILES.search(what) else option.declared.choices
    return completer(begun)


def _files(begun: str) -> list[str]:
    """Returns files that begin like this; folders end in a slash, ready for the next TAB."""
    head, tail = os.path.split(begun)
    found: list[str] = []
    with contextlib.suppress(OSError), os.scandir(os.path.expanduser(head) or ".") as entries:
        for entry in sorted(entries, key=lambda each: each.name):
            hidden = entry.name.startswith(".") and not tail.startswith(".")
            if entry.name.startswith(tail) and not hidden:
                found.append(os.path.join(head, entry.name) + "/" * entry.is_dir())
    return found


def _folders(begun: str) -> list[str]:
    return [each for each in _files(begun) if each.endswith("/")]


def _kinds(begun: str) -> Iterable[str]:
    before, comma, _ = begun.rpartition(",")
    return [before + comma + kind for kind in ("insert", "modify", "remove", "ttl")]


def _policies(begun: str) -> Iterable[str]:
    before, comma, last = begun.rpartition(",") if begun.startswith("retry:") else ("", "", begun)
    policy, colon, file = last.partition(":")
    if policy == "dead-letter" and colon:
        return [f"{before}{comma}{policy}:{path}" for path in _files(file)]
    words = ["log", "stop", "dead-letter:", *([] if comma else ["retry", "retry:"])]
    return [before + comma + word for word in words]


def _at_file(begun: str) -> Iterable[str]:
    """Completes `--filter @FILE`, and `--redact`'s."""
    return [f"@{path}" for path in _files(begun[1:])] if begun[:1] == "@" else ["@"]


def _profiles(begun: str) -> Iterable[str]:
    """Returns the profiles in the aws CLI's files."""
    import configparser  # not at every TAB

    names: list[str] = []
    for variable, default in (
        ("AWS_CONFIG_FILE", "~/.aws/config"),
        ("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"),
    ):
        profiles = configparser.RawConfigParser(strict=False)
        with contextlib.suppress(configparser.Error, OSError, UnicodeDecodeError):
            profiles.read(os.path.expanduser(os.environ.get(variable) or default))
        names += [name.removeprefix("profile ") for name in profiles.sections()]
    return [name for name in dict.fromkeys(names) if " " not in name]


# What a value is, where it is a file, or may be one.
_FILES = re.compile("FILE|PATH|PLACE|STORE|COPY|PLAN|EXPORT|ARCHIVE")
# By an option's parameter, or by what its value is.
_COMPLETERS: dict[str, Callable[[str], Iterable[str]]] = {
    "start": lambda _: ("latest", "trim-horizon", "15m", "1h", "2h", "24h"),
    "only": _kinds,
    "on_error": _policies,
    "filters": _at_file,
    "redact": _at_file,
    "profile": _profiles,
    "[GROUP]": lambda _: TOPICS,
    "[TOPIC]": lambda _: (*COMMANDS, *TOPICS),
    "DIR": _folders,
}
