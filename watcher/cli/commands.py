"""The commands, and how the words of a command line become the call of one: by Cyclopts."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any

from cyclopts import App, Argument, ArgumentCollection, CycloptsError, Parameter

from watcher.cli import completers, mistakes
from watcher.cli.defaults import Defaults, keys
from watcher.cli.options import Given, option
from watcher.cli.synonyms import OTHER_NAMES, tailed, translated
from watcher.errors import HandlerError, UsageError, WatcherError

PROGRAM = "python -m watcher"
COMMANDS = {
    "watch": "watch a table's changes (the default)",
    "streams": "list the streams of a region or a table",
    "shards": "show a stream's shards as a tree",
    "report": "put a stream's or an archive's changes on a page to look at, with pictures",
    "history": "show what happened to an item, and how it is now",
    "as-of": "give a table's items as they were at a moment",
    "undo": "put items back to how they were before some changes; first as a plan",
    "count": "count changes by kind, time, key, attribute or table",
    "replay": "hand the records of a dead-letter file to handlers again",
    "policy": "print the least that a command has to be allowed, as an IAM policy",
    "new-handler": "write a handler module to begin with, and its test",
    "trust": "let this folder's watcher.toml run code, write files and choose endpoints",
    "demo": "watch a small shop on an embedded DynamoDB; no AWS account needed",
    "query": "ask the changes of the last 24 hours by SQL, on Spark",
    "archive": "append every change to files, each exactly once, on Spark",
    "mirror": "keep a Delta table equal to this one, or with every version",
    "replicate": "keep another table equal to this one, on Spark",
    "metrics": "count changes by kind and window of time, on Spark",
    "completion": "print what makes bash, zsh or fish complete commands and options",
    "help": "help on a command or a group of options",
}
# They have no options, and help where a file of defaults is broken.
_WITHOUT_DEFAULTS = ("completion", "help", "trust")
GROUPS = {
    "handlers": "what is done with each change; modules in handlers/ are options",
    "tables": "several tables in one watch",
    "start": "where to begin, and when to end",
    "filters": "which changes",
    "failures": "checkpoints, and what happens when something fails",
    "output": "how it is printed, and where else it goes",
    "lambda": "AWS Lambda functions run as they are, with an event source mapping's settings",
    "spark": "on Spark",
    "aws": "where the stream is; as in the aws CLI",
}
"""Every group of options that several commands have, and its page: `--help NAME`."""
TOPICS = (*GROUPS, "defaults", "all")
"""What `--help` takes."""

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
# Before a word that Cyclopts would take for an option that it does not know.
_COVER = "\0"
_Rest = Annotated[str, Parameter(allow_leading_hyphen=True)]
# The last of several values counts; a list has no option that empties it.
_ALL = Parameter(allow_repeating=True, negative_iterable=())


def named(words: Sequence[str]) -> tuple[str, Sequence[str]]:
    """The command of a line, and the words that are its own."""
    name = words[0] if words else ""
    if name in COMMANDS:
        return name, words[1:]
    if name in OTHER_NAMES:
        return OTHER_NAMES[name], words[1:]
    # A table may be called so; but hardly beside another.
    return "watch", tailed(words[1:]) if name == "tail" and words[1:] else words


def sentence(name: str) -> str:
    """What a command does, as its help begins."""
    if name == "watch":
        return "See every change of a DynamoDB table, live and in order."
    text = COMMANDS[name]
    return f"{text[0].upper()}{text[1:]}."


def app(name: str, words: Sequence[str], config: Defaults | None = None) -> App:
    """Cyclopts' application of one command, of whose options some words may choose others."""
    module = importlib.import_module(f"watcher.cli.{name.replace('-', '_')}")
    command: Callable[..., int] = module.command(words)
    signature = inspect.signature(command)
    parameters = [*signature.parameters.values(), *OF_ALL]
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return _app(name, command, config)


def _app(name: str, command: Callable[..., Any], config: Defaults | None) -> App:
    made = App(
        name="watcher",
        help_flags=(),
        version_flags=(),
        help_format="plaintext",
        config=None if config is None else [config],
        default_parameter=_ALL,
    )
    made.command(command, name=name, help=COMMANDS[name], help_flags=(), version_flags=())
    return made


def arguments(made: App) -> ArgumentCollection:
    """The options and operands of an application's one command."""
    (name,) = made
    return made[name].assemble_argument_collection(default_parameter=_ALL).filter_by(parse=True)


def first(name: str, words: Sequence[str], parameter: inspect.Parameter) -> tuple[Any, str | None]:
    """The value of an option that decides which others there are, or how errors are told.

    With it, where it is from if the line does not give it. What is wrong with it is not told here:
    the line is read once more.
    """

    def take(*operands: str, **options: Any) -> None:
        """Only its signature counts."""

    rest = inspect.Parameter("rest", inspect.Parameter.VAR_POSITIONAL, annotation=_Rest)
    take.__signature__ = inspect.Signature([rest, parameter])  # type: ignore[attr-defined]
    defaults = Defaults(COMMANDS)
    made = _app(name, take, defaults if name not in _WITHOUT_DEFAULTS else None)
    try:
        _, bound, _, _ = made.parse_known_args([name, *words])
    except (CycloptsError, UsageError):
        return parameter.default, None
    value = bound.kwargs.get(parameter.name, parameter.default)
    return value, defaults.origins.get(parameter.name)


class Invocation:
    """A command line that can be run. Raises UsageError for one that can't."""

    def __init__(self, name: str, words: Sequence[str]) -> None:
        defaults = Defaults(COMMANDS, _options_of_all)
        made = app(name, words, None if name in _WITHOUT_DEFAULTS else defaults)
        collection = arguments(made)
        self._arguments = {each.field_info.name: each for each in collection}
        known = [each for argument in self._arguments.values() for each in argument.names]
        words = list(map(_covered, translated(words, known)))
        try:
            self._command, bound, asked = made.parse_args(
                [name, *words], print_error=False, exit_on_error=False
            )
        except CycloptsError as error:
            raise mistakes.told(error, words, self._arguments.values()) from None
        typed = [name for name in _named_in(words, collection) if name in bound.kwargs]
        # A short option may have its value with it: -n5.
        silent = [name for name in bound.kwargs if name not in (*typed, *defaults.origins)]
        self.given = Given(
            [*typed, *silent], defaults.origins, defaults.of_folder, defaults.strange
        )
        self._operands = list(map(_written, bound.args))
        # Of a switch with something behind it Cyclopts leaves an operand over: -v5.
        if rest := [each for each in bound.args if each not in words]:
            raise mistakes.unknown(rest[0], words, self._arguments.values())
        operands = [each for each in bound.args if isinstance(each, str)]
        mistakes.refuse_pieces(operands, words, self._arguments.values())
        bound.apply_defaults()
        given = {name: value for name, value in bound.kwargs.items() if name not in asked}
        self.values: dict[str, Any] = {name: _written(value) for name, value in given.items()}
        """The options by their parameters' names."""
        self._asked = {"given": self.given} if "given" in asked else {}

    def run(self) -> int:
        """Call the command; its exit status."""
        general = [each.name for each in OF_ALL]
        if not self._asked:
            self.given.say_used()
        options = {name: value for name, value in self.values.items() if name not in general}
        status: int = self._command(*self._operands, **options, **self._asked)
        return status

    def told(self, error: WatcherError) -> str:
        """An error in the words of the command line, with where a value comes from."""
        flags = {
            name: shown(self._arguments[name])[0]
            for name in (error.option or "", *error.about, *self._naming(error))
            if name in self._arguments
        }
        origins = {flag: self.given.origins.get(name) for name, flag in flags.items()}
        return mistakes.blamed(error, flags.get(error.option or "", error.option), origins)

    def _naming(self, error: WatcherError) -> list[str]:
        """The options that name the observer that has failed."""
        observer = error.observer if isinstance(error, HandlerError) else None
        lists = (each for each in self.values.items() if isinstance(each[1], list))
        return [name for name, values in lists if observer in values]


def _named_in(words: Sequence[str], known: ArgumentCollection) -> Iterator[str]:
    """The parameters whose options stand in a line; Cyclopts keeps no order among them."""
    for word in itertools.takewhile(lambda word: word != "--", words):
        if word.startswith("-"):
            with contextlib.suppress(ValueError):
                yield known.match(word.partition("=")[0])[0].field_info.name


def _covered(word: str) -> str:
    """A word to Cyclopts: a `-`, or SQL that begins with a comment, is no option."""
    is_text = word == "-" or (word[:1] == "-" and " " in " ".join(word.partition("=")[0].split()))
    return _COVER + word if is_text else word


def _written(value: Any) -> Any:
    """A value as it stood in the line."""
    if isinstance(value, list):
        return list(map(_written, value))
    return value.removeprefix(_COVER) if isinstance(value, str) else value


def shown(argument: Argument) -> list[str]:
    """The names by which an option is known: of a switch that is on, those that turn it off."""
    names = [name for name in argument.names if name not in argument.negatives]
    return list(argument.negatives) if argument.field_info.default is True else names


def _options_of_all() -> set[str] | None:
    """None without Spark: nobody knows the options of its commands."""
    try:
        return {key for name in COMMANDS for key in keys(arguments(app(name, ())))}
    except UsageError:
        return None
