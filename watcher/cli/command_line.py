"""A command line before its parse: a command's name, its words and the options it can have.

Two options (`--engine`, `--handlers`) decide which options a command has, and one (`--log-format`)
how errors are printed: `CommandLine.peek` looks these up before the parse (`invocation.py`).
"""

from __future__ import annotations

import importlib
import inspect
import itertools
from collections.abc import Callable, Sequence

from watcher.cli import completers
from watcher.cli.commands import COMMANDS, TOPICS, WITHOUT_DEFAULTS
from watcher.cli.defaults import Defaults, Found
from watcher.cli.options import declaration, flags_of, names_of, negatives_of, option
from watcher.declared import Parameter
from watcher.errors import UsageError

LOG_FORMAT = option(
    "log_format",
    str,
    "text",
    Parameter(
        choices=("text", "json"),
        metavar="FORMAT",
        group="output",
        help="status and errors as text (default), or as json: one object a line",
    ),
)
VERBOSE = option("verbose", bool, False, Parameter(alias="-v", help="more status, and tracebacks"))
QUIET = option(
    "quiet",
    bool,
    False,
    Parameter(alias="-q", help="no status on stderr, only warnings and errors"),
)
HELP = option(
    "help",
    str,
    None,
    Parameter(
        alias="-h",
        metavar="[GROUP]",
        completer=completers.words(*TOPICS),
        help="help; on a group of options; all",
    ),
)
VERSION = option("version", bool, False, Parameter(alias="-V", negative=(), help="the version"))
OF_ALL = (VERBOSE, QUIET, LOG_FORMAT, HELP, VERSION)
"""The options that every command has."""


class CommandLine:
    """The words after a command's name, and the defaults for options they don't give."""

    def __init__(self, name: str, words: Sequence[str] = ()) -> None:
        self.name = name
        self.words = words
        self.defaults = Defaults(name, COMMANDS, _options_of_all)
        self.has_defaults = name not in WITHOUT_DEFAULTS

    def peek(self, parameter: inspect.Parameter) -> Found:
        """Returns an option's texts before the parse.

        The parse reports invalid texts, and an option that the command does not have.
        """
        flags = flags_of(parameter)
        words = iter(list(itertools.takewhile(lambda word: word != "--", self.words)))
        texts = []
        for word in words:
            flag, equals, text = word.partition("=")
            if word.startswith("--") and flag.replace("_", "-") in flags:
                texts.append(text if equals else next(words, ""))
        if texts or not self.has_defaults:
            return Found(texts)
        (flag,) = flags
        return self.defaults.peek(flag.removeprefix("--"), declaration(parameter).metavar)


def command(line: CommandLine) -> tuple[Callable[..., int], list[inspect.Parameter]]:
    """Returns the function of a line's command, and its operands and options."""
    module = importlib.import_module(f"watcher.cli.{COMMANDS[line.name].module}")
    make = getattr(module, f"{line.name.replace('-', '_')}_command")
    run: Callable[..., int] = make(line)
    own = inspect.signature(run, eval_str=True).parameters.values()
    return run, [*own, *OF_ALL]


def parameters(line: CommandLine) -> list[inspect.Parameter]:
    """Returns the operands and options of a line's command."""
    return [each for each in command(line)[1] if declaration(each).parse]


def _options_of_all() -> set[str] | None:
    """Returns the names of every command's options; None without Spark, which declares its own."""
    try:
        found = [each for name in COMMANDS for each in parameters(CommandLine(name))]
    except UsageError:
        return None
    names = [name for each in found for name in (*names_of(each), *negatives_of(each))]
    return {name[2:] for name in names if name.startswith("--")}
