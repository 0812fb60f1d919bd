"""Options of commands, as parameters built from the annotations of functions."""

from __future__ import annotations

import inspect
import logging
import re
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeAlias, TypeVar

from watcher.cli import completers
from watcher.declared import Opt, declared
from watcher.errors import UsageError
from watcher.times import duration_text, parse_seconds

if TYPE_CHECKING:
    from watcher.aws.config import AwsConfig
    from watcher.records.filters import RecordFilter
    from watcher.records.redaction import Redaction

logger = logging.getLogger("watcher")

_Result = TypeVar("_Result")

Value: TypeAlias = Any
"""An option's value: the declaration has its type of it."""
Values: TypeAlias = Mapping[str, Value]
"""The options of a command by name; one that was not given has its default."""
Type: TypeAlias = Any
"""The type that an option is declared with: a class, `list[str]`, a Literal."""

AWS = ("region", "profile", "endpoint_url")
FILTERS = ("filters", "key", "only", "grep")


class Origins(NamedTuple):
    """The origins of a command's option values; a command gets them as its parameter `origins`."""

    typed: Sequence[str]
    """The parameters that the command line gives, in its order and as often as it does."""
    defaults: Mapping[str, str]
    """The parameters that a file or a variable gives, and where that is."""


OriginsArgument = Annotated[Origins, Opt(parse=False)]
"""The type of a command's parameter `origins`."""
Stream = Annotated[str, Opt("a stream ARN, a table ARN or a table name")]
"""The STREAM that most commands are about."""
Streams = Annotated[
    str, Opt("a stream ARN, a table ARN, a table name, or a glob such as 'shop-*'", name="STREAM")
]
"""Each STREAM of a command that takes several."""
TRAIL = Opt(
    "name the callers, from CloudTrail's log files with data events: a folder, or its "
    "s3:// URL (AWSLogs/…)",
    "PLACE",
    completer=completers.files,
)
"""The option `--who`, of all commands that have it."""
Who = Annotated[str | None, TRAIL]
"""The trail that tells who made the changes."""
Output = Annotated[
    str, Opt("text (default) or json", "FORMAT", alias="-o", choices=("text", "json"))
]
"""The option of a command's output format."""


def age(moment: datetime, now: datetime) -> str:
    """Formats how long ago something was."""
    return duration_text((now - moment).total_seconds())


def option(name: str, kind: Type, default: object, declaration: Opt) -> inspect.Parameter:
    """Returns an option as a parameter of a command."""
    keyword, hint = inspect.Parameter.KEYWORD_ONLY, Annotated[kind, declaration]
    return plain(inspect.Parameter(name, keyword, default=default, annotation=hint))


def plain(parameter: inspect.Parameter) -> inspect.Parameter:
    """Returns an option or operand with the one type that the command line makes of its words.

    It is a class: of several, the first; `list` for an option that can be repeated.
    """
    kind, declared = *typing.get_args(parameter.annotation)[:1], declaration(parameter)
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        kind = typing.get_args(kind)[0]
    if typing.get_origin(kind) is Literal:
        kind, declared = str, replace(declared, choices=typing.get_args(kind))
    elif typing.get_origin(kind) is list:  # a text may hold several, with commas
        kind = list
    completer = declared.completer or completers.of(parameter.name, declared.metavar)
    hint: Type = Annotated[kind, replace(declared, completer=completer)]
    return parameter.replace(annotation=hint)


def kind_of(parameter: inspect.Parameter) -> Type:
    """Returns the type of a plain parameter."""
    return typing.get_args(parameter.annotation)[0]


def read_value(parameter: inspect.Parameter, text: str, given: str) -> Value:
    """Returns an option's value for a text, which errors show as `given`. Raises UsageError."""
    kind, declared = kind_of(parameter), declaration(parameter)
    if declared.choices and text not in declared.choices:
        *others, last = declared.choices
        raise UsageError(f"{given}: use {', '.join(others)}{' or ' * bool(others)}{last}")
    try:
        if kind is float and declared.metavar == "SECONDS":
            return parse_seconds(text)
        return kind(text) if kind in (int, float) else text
    except UsageError as error:
        raise UsageError(f"{given}: {error.args[0]}") from None
    except ValueError:
        number = "a number" if kind is float else "a whole number"
        raise UsageError(f"{given} is not {number}") from None


def flag(name: str) -> str:
    """Returns a parameter's option: `--max-records` for `max_records`."""
    return "--" + name.replace("_", "-")


def declaration(parameter: inspect.Parameter) -> Opt:
    """Returns what a parameter's annotation declares; nothing for a bare type."""
    found = [each for each in typing.get_args(parameter.annotation) if isinstance(each, Opt)]
    return found[0] if found else Opt()


def flags_of(parameter: inspect.Parameter) -> list[str]:
    """Returns an option's names without its aliases; an operand's name."""
    named = _several(declaration(parameter).name)
    return named or [parameter.name.upper() if is_operand(parameter) else flag(parameter.name)]


def names_of(parameter: inspect.Parameter) -> list[str]:
    """Returns an option's names with its aliases."""
    return [*flags_of(parameter), *_several(declaration(parameter).alias)]


def negatives_of(parameter: inspect.Parameter) -> list[str]:
    """Returns the options that turn a switch off."""
    negative = declaration(parameter).negative
    if negative is None:
        named = [each for each in flags_of(parameter) if each.startswith("--")]
        return [f"--no-{each[2:]}" for each in named] if is_switch(parameter) else []
    return _several(negative)


def shown_names(parameter: inspect.Parameter) -> list[str]:
    """Returns an option's names; for a switch that is on by default, those that turn it off."""
    return negatives_of(parameter) if parameter.default is True else names_of(parameter)


def is_switch(parameter: inspect.Parameter) -> bool:
    """True for an option that takes no value."""
    return not is_operand(parameter) and kind_of(parameter) is bool


def is_operand(parameter: inspect.Parameter) -> bool:
    """True for a word that stands without an option's name."""
    return parameter.kind is not parameter.KEYWORD_ONLY


def _several(names: str | tuple[str, ...]) -> list[str]:
    return [names] if isinstance(names, str) else [*names]


def declared_by(
    function: Callable[..., object], *names: str, **own: str
) -> Iterator[inspect.Parameter]:
    """Yields the options that a function or a class declares: all, or those with these names.

    `own` replaces defaults. If a parameter takes several types, the command line has the first.
    """
    for name, parameter in declared(function).parameters.items():
        is_option = typing.get_origin(parameter.annotation) is Annotated
        if not is_option or (names and name not in names):
            continue
        kind, declaration = typing.get_args(parameter.annotation)
        if name in own:
            text = re.sub("default .*", f"default {own[name]}", declaration.help or "")
            declaration = replace(declaration, help=text)
        yield option(name, kind, own.get(name, parameter.default), declaration)


def values(function: Callable[..., object], options: Mapping[str, Value]) -> dict[str, Value]:
    """Returns the values that a function takes, as its keyword arguments."""
    return {each.name: options[each.name] for each in declared_by(function) if each.name in options}


def call(function: Callable[..., _Result], options: Values) -> _Result:
    """Calls a function with the values that it takes."""
    return function(**values(function, options))


def connection(options: Values) -> AwsConfig:
    """Returns the AWS options."""
    from watcher.aws.config import AwsConfig

    return AwsConfig(options["region"], options["profile"], options["endpoint_url"])


def record_filter(options: Values) -> RecordFilter | None:
    """Returns the filter of these options; None: every record passes. Raises UsageError."""
    from watcher.records import filters

    one, key, only, grep = (options[name] for name in FILTERS)
    return filters.record_filter(filters=one, key=key, only=only, grep=grep)


def redaction(options: Values) -> Redaction | None:
    """Returns the redaction of these options; None without one. Raises UsageError.

    A command without these options, such as `demo`, redacts nothing.
    """
    from watcher.records import redaction as made

    return made.redaction(options.get("redact"))


def refuse_redaction(options: Values, reason: str) -> None:
    """Raises UsageError if a command is asked to redact but can't."""
    if options["redact"] and options["redact"] != [""]:
        text = f"{reason}: leave it out; --redact '' does, where a file or a variable gives it"
        raise UsageError(text, "redact")


def with_options(
    run: Callable[..., int], *parts: Iterable[inspect.Parameter]
) -> Callable[..., int]:
    """Returns a command with these parameters in place of `**options`."""

    def command(*arguments: object, **options: object) -> int:
        return run(*arguments, **options)

    signature = inspect.signature(run, eval_str=True)
    own = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
    parameters = [*own, *(each for part in parts for each in part)]
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return command
