"""The commands, and a command line before its parse: its words and the options it can have.

Two options (`--engine`, `--handlers`) decide which options a command has, and one (`--log-format`)
how errors are printed: `CommandLine.peek` looks these up before the parse (`invocation.py`).
"""

from __future__ import annotations

import importlib
import inspect
import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

from watcher.cli import completers
from watcher.cli.defaults import Defaults, PeekedOption
from watcher.cli.options import declaration, flags_of, names_of, negatives_of, option, plain
from watcher.cli.parser import read
from watcher.declared import Opt
from watcher.errors import UsageError

PROGRAM = "python -m watcher"


class Command(NamedTuple):
    """A command's summary and the module of this package that defines `NAME_command`."""

    summary: str
    module: str


COMMANDS = {
    "watch": Command("watch a table's changes (the default)", "watch"),
    "streams": Command("list the streams of a region or a table", "streams"),
    "shards": Command("show a stream's shards as a tree", "streams"),
    "report": Command(
        "put a stream's or an archive's changes on a page to look at, with pictures", "report"
    ),
    "history": Command("show what happened to an item, and how it is now", "history_commands"),
    "as-of": Command("give a table's items as they were at a moment", "history_commands"),
    "undo": Command("put items back to how they were before some changes; first as a plan", "undo"),
    "verify": Command("prove that a copy is equal to its table, or name what it lacks", "verify"),
    "count": Command("count changes by kind, time, key, attribute or table", "history_commands"),
    "replay": Command("hand the records of a dead-letter file to handlers again", "replay"),
    "positions": Command("show a checkpoint, or move it back", "positions"),
    "demo": Command("watch a small shop on an embedded DynamoDB; no AWS account needed", "demo"),
    "query": Command("ask the changes of the last 24 hours by SQL, on Spark", "spark_commands"),
    "archive": Command(
        "append every change to files, each exactly once, on Spark", "spark_commands"
    ),
    "mirror": Command(
        "keep a table in Delta or Iceberg equal to this one, or with every version",
        "spark_commands",
    ),
    "replicate": Command("keep another table equal to this one, on Spark", "spark_commands"),
    "completion": Command(
        "print what makes bash, zsh or fish complete commands and options", "completion"
    ),
    "help": Command("help on a command or a group of options", "help"),
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


LOG_FORMAT = option(
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
VERBOSE = option("verbose", bool, False, Opt("more status, and tracebacks", alias="-v"))
QUIET = option(
    "quiet",
    bool,
    False,
    Opt("no status on stderr, only warnings and errors", alias="-q"),
)
HELP = option(
    "help",
    str,
    None,
    Opt(
        "help; on a group of options; all",
        "[GROUP]",
        alias="-h",
        completer=completers.words(*TOPICS),
    ),
)
VERSION = option("version", bool, False, Opt("the version", alias="-V", negative=()))
_SWITCHES = {*names_of(VERBOSE), *names_of(QUIET)}
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

    def peek(self, parameter: inspect.Parameter) -> PeekedOption:
        """Returns an option's texts before the parse.

        The parse reports invalid texts, and an option that the command does not have.
        """
        try:
            texts = [str(each.value) for each in read([parameter], self.words).given]
        except UsageError:
            texts = []
        if texts or not self.has_defaults:
            return PeekedOption(texts)
        (flag,) = flags_of(parameter)
        return self.defaults.peek(flag.removeprefix("--"))


def command_line(words: Sequence[str]) -> CommandLine:
    """Returns the line of a program's words: only -q or -v may stand before the command."""
    switches = list(itertools.takewhile(_SWITCHES.__contains__, words))
    rest = words[len(switches) :]
    if rest and rest[0] in COMMANDS:
        return CommandLine(rest[0], [*switches, *rest[1:]])
    return CommandLine("watch", words, is_named=False)


def command(line: CommandLine) -> tuple[Callable[..., int], list[inspect.Parameter]]:
    """Returns the function of a line's command, and its operands and options."""
    module = importlib.import_module(f"watcher.cli.{COMMANDS[line.name].module}")
    make = getattr(module, f"{line.name.replace('-', '_')}_command")
    run: Callable[..., int] = make(line)
    own = inspect.signature(run, eval_str=True).parameters.values()
    return run, [*map(plain, own), *OF_ALL]


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
