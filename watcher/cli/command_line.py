"""The commands, and a command line before its parse: its words and the options it can have.

Two options (`--engine`, `--handlers`) decide which options a command has, and one (`--log-format`)
how errors are printed: `CommandLine.peek` looks these up before the parse (`invocation.py`).
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

from watcher.cli.defaults import Defaults, PeekedOption
from watcher.cli.options import Command, Option
from watcher.cli.parser import read
from watcher.declared import Opt
from watcher.errors import UsageError

PROGRAM = "python -m watcher"


class Listed(NamedTuple):
    """A command's summary and the module of this package that defines `NAME_command`."""

    summary: str
    module: str


COMMANDS = {
    "watch": Listed("watch a table's changes (the default)", "watch"),
    "streams": Listed("list the streams of a region or a table", "streams"),
    "shards": Listed("show a stream's shards as a tree", "streams"),
    "report": Listed("put a stream's or an archive's changes on a page, with pictures", "report"),
    "history": Listed("show what happened to an item, and how it is now", "history_commands"),
    "as-of": Listed("give a table's items as they were at a moment", "history_commands"),
    "undo": Listed("put items back as they were before some changes; a plan first", "undo"),
    "verify": Listed("prove that a copy is equal to its table, or name what it lacks", "verify"),
    "count": Listed("count changes by kind, time, key, attribute or table", "history_commands"),
    "replay": Listed("hand the records of a dead-letter file to handlers again", "replay"),
    "positions": Listed("show a checkpoint", "positions"),
    "demo": Listed("watch a small shop on an embedded DynamoDB; no AWS account", "demo"),
    "query": Listed("ask the changes of the last 24 hours by SQL, on Spark", "spark_commands"),
    "archive": Listed("append every change to files, exactly once, on Spark", "spark_commands"),
    "mirror": Listed("keep a table in Delta or Iceberg equal to this one", "spark_commands"),
    "replicate": Listed("keep another table equal to this one, on Spark", "spark_commands"),
    "completion": Listed("print what makes bash, zsh or fish complete words", "completion"),
    "help": Listed("help on a command or a group of options", "help"),
}
WITHOUT_DEFAULTS = ("completion", "help")
"""Commands without options: they work where a file of defaults is broken."""
GROUPS = {
    "handlers": "what to do with each change; each module in handlers/ is an option",
    "tables": "several tables in one watch",
    "start": "where to begin, and when to end",
    "filters": "which changes to deliver, and what to hide",
    "failures": "checkpoints, and what happens when something fails",
    "output": "how it is printed, and where else it goes",
    "lambda": "AWS Lambda functions run as they are, with an event source mapping's settings",
    "spark": "on Spark",
    "aws": "where the stream is; as in the aws CLI",
}
"""Every group of options that several commands have, and its page: `--help NAME`."""
TOPICS = (*GROUPS, "defaults", "all")
"""The topics that `--help` takes."""


def sentence(name: str) -> str:
    """Returns the first sentence of a command's help."""
    if name == "watch":
        return "See every change of a DynamoDB table, live and in order."
    text = COMMANDS[name].summary
    return f"{text[0].upper()}{text[1:]}."


LOG_FORMAT = Option(
    "log_format",
    str,
    "text",
    Opt(
        "status and errors as text (default), or as json: one object a line",
        "FORMAT",
        "output",
        choices=("text", "json"),
    ),
)
VERBOSE = Option("verbose", bool, False, Opt("more status, and tracebacks", alias="-v"))
QUIET = Option("quiet", bool, False, Opt("only warnings and errors on stderr", alias="-q"))
HELP = Option("help", str, None, Opt("help; on a group of options; all", "[GROUP]", alias="-h"))
VERSION = Option("version", bool, False, Opt("the version", alias="-V", negative=""))
OF_ALL = (VERBOSE, QUIET, LOG_FORMAT, HELP, VERSION)
"""The options that every command has."""


class CommandLine:
    """The words after a command's name, and the defaults for options they don't give.

    `is_named` is False where a line begins with no command and means a watch.
    """

    def __init__(self, name: str, words: Sequence[str] = (), *, is_named: bool = True) -> None:
        self.name = name
        self.words = words
        self.is_named = is_named
        self.defaults = Defaults(name, COMMANDS, _options_of_all)
        self.has_defaults = name not in WITHOUT_DEFAULTS

    def peek(self, option: Option) -> PeekedOption:
        """Returns an option's texts before the parse.

        The parse reports invalid texts, and an option that the command does not have.
        """
        try:
            texts = [str(each.value) for each in read([option], self.words).given]
        except UsageError:
            texts = []
        if texts or not self.has_defaults:
            return PeekedOption(texts)
        return self.defaults.peek(option.flags[0].removeprefix("--"))


def command_line(words: Sequence[str]) -> CommandLine:
    """Returns the line of a program's words: only -q or -v may stand before the command."""
    switches = list(itertools.takewhile([*VERBOSE.names, *QUIET.names].__contains__, words))
    rest = words[len(switches) :]
    if rest and rest[0] in COMMANDS:
        return CommandLine(rest[0], [*switches, *rest[1:]])
    return CommandLine("watch", words, is_named=False)


def command(line: CommandLine) -> Command:
    """Returns what a line's command does, and its operands and own options."""
    module = importlib.import_module(f"watcher.cli.{COMMANDS[line.name].module}")
    make: Callable[[CommandLine], Command]
    make = getattr(module, f"{line.name.replace('-', '_')}_command")
    return make(line)


def parameters(line: CommandLine) -> list[Option]:
    """Returns the operands and options of a line's command."""
    return [*command(line).options, *OF_ALL]


def _options_of_all() -> set[str] | None:
    """Returns the names of every command's options; None without Spark, which declares its own."""
    try:
        found = [each for name in COMMANDS for each in parameters(CommandLine(name))]
    except UsageError:
        return None
    return {name[2:] for each in found for name in (*each.names, *each.negatives)}
