"""Parses a command line, once, with Cyclopts, and runs its command."""

from __future__ import annotations

import contextlib
import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields
from typing import Annotated, Any, cast, get_args

from cyclopts import App, ArgumentCollection, CycloptsError
from cyclopts import Parameter as CycloptsParameter

from watcher.cli import mistakes
from watcher.cli.command_line import COMMANDS, OF_ALL, CommandLine, command, parameters
from watcher.cli.options import Origins, Value, declaration, names_of, negatives_of, shown_names
from watcher.errors import HandlerError, UsageError, WatcherError

# Before a word that Cyclopts would take for an option that it does not know.
_COVER = "\0"
# The last of several values counts; a list has no option that empties it.
_ALL = CycloptsParameter(allow_repeating=True, negative_iterable=())
# We print the errors ourselves; Cyclopts would import rich for its own console.
_NO_CONSOLE = cast(Any, object())


class _Command(App):
    """An application of one command, whose arguments are put together once."""

    _collected: ArgumentCollection | None = None

    def assemble_argument_collection(
        self, *, default_parameter: CycloptsParameter | None = None, parse_docstring: bool = False
    ) -> ArgumentCollection:
        """Returns the command's operands and options."""
        if self._collected is None:
            self._collected = super().assemble_argument_collection(
                default_parameter=default_parameter, parse_docstring=parse_docstring
            )
        return self._collected


def app(line: CommandLine) -> App:
    """Returns the Cyclopts application for a line's command."""
    return _app(line, *command(line))


def _app(
    line: CommandLine, run: Callable[..., int], parameters: Iterable[inspect.Parameter]
) -> App:
    declared = list(map(_for_cyclopts, parameters))

    def call(*operands: object, **values: object) -> int:
        return run(*operands, **values)

    call.__signature__ = inspect.Signature(declared)  # type: ignore[attr-defined]
    call.__annotations__ = {}  # Cyclopts would take these rather than the signature's
    made = App(
        name="watcher",
        help_flags=(),
        version_flags=(),
        help_format="plaintext",
        config=[line.defaults] if line.has_defaults else None,
        default_parameter=_ALL,
        error_console=_NO_CONSOLE,
    )
    summary = COMMANDS[line.name].summary
    only = _Command(name=line.name, help=summary, help_flags=(), version_flags=())
    only.default(call)
    made.command(only)
    return made


def _for_cyclopts(parameter: inspect.Parameter) -> inspect.Parameter:
    declared = declaration(parameter)
    settings = {each.name: getattr(declared, each.name) for each in fields(declared)}
    settings = {name: value for name, value in settings.items() if value not in (None, ())}
    if declared.negative == ():
        settings["negative"] = ()
    kind = (get_args(parameter.annotation) or (parameter.annotation,))[0]
    return parameter.replace(annotation=Annotated[kind, CycloptsParameter(**settings)])


def arguments(made: App) -> ArgumentCollection:
    """Returns the options and operands of an application's one command."""
    (name,) = made
    return made[name].assemble_argument_collection(default_parameter=_ALL).filter_by(parse=True)


class Invocation:
    """A command line that can be run. Raises UsageError for one that can't."""

    def __init__(self, line: CommandLine) -> None:
        self._line = line
        run, declared = command(line)
        words = list(map(_covered, line.words))
        used = _used(line, words, declared)
        try:
            self._parse(words, _app(line, run, used))
        except (CycloptsError, UsageError):
            if len(used) == len(declared):
                raise
            used = declared  # the message is about all options
            self._parse(words, _app(line, run, used))
        self.values |= {each.name: each.default for each in declared if each not in used}

    def _parse(self, words: list[str], made: App) -> None:
        line = self._line
        collection = arguments(made)
        known = {each.field_info.name: each for each in collection}.values()
        try:
            self._command, bound, unparsed = made.parse_args(
                [line.name, *words], print_error=False, exit_on_error=False
            )
        except CycloptsError as error:
            raise mistakes.explained(error, words, known) from None
        typed = [name for name in _named_in(words, collection) if name in bound.kwargs]
        defaults = line.defaults
        # A short option may have its value with it: -n5.
        silent = [name for name in bound.kwargs if name not in (*typed, *defaults.origins)]
        self.origins = Origins(
            [*typed, *silent], defaults.origins, defaults.of_folder, defaults.untrusted
        )
        self.operands: list[str] = list(map(_written, bound.args))
        # Of a switch with something behind it Cyclopts leaves an operand over: -v5.
        if rest := [each for each in bound.args if each not in words]:
            raise mistakes.unknown(rest[0], words, known)
        bound.apply_defaults()
        self.values: dict[str, Any] = {
            name: _written(value) for name, value in bound.kwargs.items() if name not in unparsed
        }
        """The options by their parameters' names."""
        self._unparsed = {"origins": self.origins} if "origins" in unparsed else {}

    def run(self) -> int:
        """Calls the command; returns its exit status."""
        general = [each.name for each in OF_ALL]
        if not self._unparsed:
            self.origins.log_from_folder()
        options = {name: value for name, value in self.values.items() if name not in general}
        status: int = self._command(*self.operands, **options, **self._unparsed)
        return status

    def explain(self, error: WatcherError) -> str:
        """Returns an error's text with the options' names and the source of their values."""
        known = {each.name: each for each in parameters(self._line)}
        flags = {
            name: shown_names(known[name])[0]
            for name in (error.option or "", *error.about, *self._naming(error))
            if name in known
        }
        origins = {flag: self.origins.defaults.get(name) for name, flag in flags.items()}
        return mistakes.blamed(error, flags.get(error.option or "", error.option), origins)

    def _naming(self, error: WatcherError) -> list[str]:
        """Returns the options that chose the handler that failed."""
        handler = error.handler if isinstance(error, HandlerError) else None
        lists = (each for each in self.values.items() if isinstance(each[1], list))
        return [name for name, values in lists if handler in values]


def _used(
    line: CommandLine, words: Sequence[str], declared: list[inspect.Parameter]
) -> list[inspect.Parameter]:
    """Returns the parameters that a line gives: Cyclopts takes long for each of a hundred.

    Returns all of them if a word is not exactly one of their names.
    """
    options = itertools.takewhile(lambda word: word != "--", words)
    named = {word.partition("=")[0] for word in options if word.startswith("-")}
    if line.has_defaults:
        named.update(f"--{key}" for key in line.defaults.given_keys())
    names = {each.name: {*_names(each)} for each in declared if each.kind is each.KEYWORD_ONLY}
    if named - set().union(*names.values()):
        return declared
    return [
        each
        for each in declared
        if each.name not in names
        or each.default is each.empty
        or not declaration(each).parse
        or names[each.name] & named
    ]


def _names(parameter: inspect.Parameter) -> list[str]:
    return [*names_of(parameter), *negatives_of(parameter)]


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
