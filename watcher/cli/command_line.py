"""Parses a command line, once, with Cyclopts.

Two options (`--engine`, `--handlers`) decide which options a command has, and one (`--log-format`)
how errors are printed: `CommandLine.peek` looks these up before the parse.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import itertools
import shlex
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from cyclopts import App, Argument, ArgumentCollection, CycloptsError, Parameter

from watcher.cli import completers, mistakes, synonyms
from watcher.cli.commands import COMMANDS, PROGRAM, TOPICS, WITHOUT_DEFAULTS
from watcher.cli.defaults import Defaults, Found, keys
from watcher.cli.options import Given, Value, flags_of, option
from watcher.errors import HandlerError, UsageError, WatcherError

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
# The last of several values counts; a list has no option that empties it.
_ALL = Parameter(allow_repeating=True, negative_iterable=())


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
        (about,) = parameter.annotation.__metadata__
        return self.defaults.peek(flag.removeprefix("--"), about.metavar)


def app(line: CommandLine) -> App:
    """Returns the Cyclopts application for a line's command."""
    module = importlib.import_module(f"watcher.cli.{COMMANDS[line.name].module}")
    make = getattr(module, f"{line.name.replace('-', '_')}_command")
    command: Callable[..., int] = make(line)
    signature = inspect.signature(command)
    parameters = [*signature.parameters.values(), *OF_ALL]
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    made = App(
        name="watcher",
        help_flags=(),
        version_flags=(),
        help_format="plaintext",
        config=[line.defaults] if line.has_defaults else None,
        default_parameter=_ALL,
    )
    made.command(
        command, name=line.name, help=COMMANDS[line.name].summary, help_flags=(), version_flags=()
    )
    return made


def arguments(made: App) -> ArgumentCollection:
    """Returns the options and operands of an application's one command."""
    (name,) = made
    return made[name].assemble_argument_collection(default_parameter=_ALL).filter_by(parse=True)


class Invocation:
    """A command line that can be run. Raises UsageError for one that can't."""

    def __init__(self, line: CommandLine) -> None:
        made = app(line)
        collection = arguments(made)
        self._arguments = {each.field_info.name: each for each in collection}
        known = [each for argument in self._arguments.values() for each in argument.names]
        if "-n" not in known:
            synonyms.refuse_count(line.words)
        words = list(map(_covered, synonyms.translated(line.words, known, line.name)))
        try:
            self._command, bound, unparsed = made.parse_args(
                [line.name, *words], print_error=False, exit_on_error=False
            )
        except CycloptsError as error:
            wrong = mistakes.explained(error, words, self._arguments.values())
            raise _refusal(line, wrong) from None
        typed = [name for name in _named_in(words, collection) if name in bound.kwargs]
        defaults = line.defaults
        # A short option may have its value with it: -n5.
        silent = [name for name in bound.kwargs if name not in (*typed, *defaults.origins)]
        self.given = Given(
            [*typed, *silent], defaults.origins, defaults.of_folder, defaults.untrusted
        )
        self.operands: list[str] = list(map(_written, bound.args))
        # Of a switch with something behind it Cyclopts leaves an operand over: -v5.
        if rest := [each for each in bound.args if each not in words]:
            raise mistakes.unknown(rest[0], words, self._arguments.values())
        operands = [each for each in bound.args if isinstance(each, str)]
        mistakes.refuse_pieces(operands, words, self._arguments.values())
        bound.apply_defaults()
        given = {name: value for name, value in bound.kwargs.items() if name not in unparsed}
        self.values: dict[str, Any] = {name: _written(value) for name, value in given.items()}
        """The options by their parameters' names."""
        self._unparsed = {"given": self.given} if "given" in unparsed else {}

    def run(self) -> int:
        """Calls the command; returns its exit status."""
        general = [each.name for each in OF_ALL]
        if not self._unparsed:
            self.given.log_used()
        options = {name: value for name, value in self.values.items() if name not in general}
        status: int = self._command(*self.operands, **options, **self._unparsed)
        return status

    def explain(self, error: WatcherError) -> str:
        """Returns an error's text with the options' names and the source of their values."""
        flags = {
            name: shown(self._arguments[name])[0]
            for name in (error.option or "", *error.about, *self._naming(error))
            if name in self._arguments
        }
        origins = {flag: self.given.origins.get(name) for name, flag in flags.items()}
        return mistakes.blamed(error, flags.get(error.option or "", error.option), origins)

    def _naming(self, error: WatcherError) -> list[str]:
        """Returns the options that chose the handler that failed."""
        handler = error.handler if isinstance(error, HandlerError) else None
        lists = (each for each in self.values.items() if isinstance(each[1], list))
        return [name for name, values in lists if handler in values]


def _refusal(line: CommandLine, wrong: UsageError) -> UsageError:
    """Returns the error; in `rollback orders --to 10m` the first word is the mistake."""
    first, *rest = line.words or [""]
    near = synonyms.command_for(first, COMMANDS) if line.name == "watch" else None
    if near in (None, "watch"):
        return wrong
    told = f"{PROGRAM} {shlex.join([str(near), *rest])}"
    return UsageError(f"{str(wrong).partition(';')[0]}; did you mean: {told}")


def _named_in(words: Sequence[str], known: ArgumentCollection) -> Iterator[str]:
    """Yields the parameters whose options are in a line, in order, which Cyclopts does not keep."""
    for word in itertools.takewhile(lambda word: word != "--", words):
        if word.startswith("-"):
            with contextlib.suppress(ValueError):
                yield known.match(word.partition("=")[0])[0].field_info.name


def _covered(word: str) -> str:
    """Returns a word for Cyclopts: `-`, or SQL that begins with a comment, is not an option."""
    is_text = word == "-" or (word[:1] == "-" and " " in " ".join(word.partition("=")[0].split()))
    return _COVER + word if is_text else word


def _written(value: Value) -> Value:
    """Returns a value as the user typed it."""
    if isinstance(value, list):
        return list(map(_written, value))
    return value.removeprefix(_COVER) if isinstance(value, str) else value


def shown(argument: Argument) -> list[str]:
    """Returns an option's names; for a switch that is on by default, those that turn it off."""
    names = [name for name in argument.names if name not in argument.negatives]
    return list(argument.negatives) if argument.field_info.default is True else names


def _options_of_all() -> set[str] | None:
    """Returns the names of every command's options; None without Spark, which declares its own."""
    try:
        return {key for name in COMMANDS for key in keys(arguments(app(CommandLine(name))))}
    except UsageError:
        return None
