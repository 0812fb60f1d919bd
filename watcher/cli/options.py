"""Options and operands of commands, as functions' annotations and `Option` declare them."""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeAlias, TypeVar

from watcher.declared import Opt, declared
from watcher.errors import UsageError
from watcher.times import parse_seconds

if TYPE_CHECKING:
    from watcher.aws.config import AwsConfig
    from watcher.records.filters import RecordFilter
    from watcher.records.redaction import Redaction

_Result = TypeVar("_Result")

Value: TypeAlias = Any
"""An option's value: the declaration has its type of it."""
Values: TypeAlias = Mapping[str, Value]
"""The options of a command by name; one that was not given has its default."""

REQUIRED = inspect.Parameter.empty
"""The default of an option that has to be given."""
AWS = ("region", "profile", "endpoint_url")
FILTERS = ("filters", "key", "only", "grep")


class Origins(NamedTuple):
    """The origins of a command's option values; a command gets them as its parameter `origins`."""

    typed: Sequence[str]
    """The parameters that the command line gives, in its order and as often as it does."""
    defaults: Mapping[str, str]
    """The parameters that a file or a variable gives, and where that is."""


@dataclass(frozen=True)
class Option:
    """An option of a command, or an operand: a word that stands without a name."""

    name: str
    """The parameter that gets the value."""
    kind: type
    """What is made of its words: bool (a switch), int, float, str, or list of an option's texts."""
    default: Value
    declared: Opt
    is_operand: bool = False
    is_repeated: bool = False
    """True for an operand that any number of words may be."""

    @classmethod
    def of(cls, parameter: inspect.Parameter) -> Option:
        """Returns what a parameter declares; if it takes several types, the first counts."""
        kind, opt = typing.get_args(parameter.annotation)
        if typing.get_origin(kind) in (types.UnionType, typing.Union):
            kind = typing.get_args(kind)[0]
        if typing.get_origin(kind) is Literal:
            kind, opt = str, replace(opt, choices=typing.get_args(kind))
        elif typing.get_origin(kind) is list:  # a text may hold several, with commas
            kind = list
        is_operand = parameter.kind is not parameter.KEYWORD_ONLY
        is_repeated = parameter.kind is parameter.VAR_POSITIONAL
        return cls(parameter.name, kind, parameter.default, opt, is_operand, is_repeated)

    @property
    def flags(self) -> list[str]:
        """The option's names without its aliases; an operand's name."""
        if self.is_operand:
            return [self.declared.name or self.name.upper()]
        return self.declared.name.split() or [flag(self.name)]

    @property
    def names(self) -> list[str]:
        """The option's names with its aliases."""
        return [*self.flags, *self.declared.alias.split()]

    @property
    def is_switch(self) -> bool:
        """True for an option that takes no value."""
        return self.kind is bool

    @property
    def negatives(self) -> list[str]:
        """The options that turn a switch off."""
        if self.declared.negative is not None or not self.is_switch:
            return (self.declared.negative or "").split()
        return [f"--no-{each[2:]}" for each in self.flags if each.startswith("--")]

    @property
    def shown(self) -> list[str]:
        """The option's names; for a switch that is on by default, those that turn it off."""
        return self.negatives if self.default is True else self.names

    def read(self, text: str, given: str) -> Value:
        """Returns the value for a text, which errors show as `given`. Raises UsageError."""
        choices = self.declared.choices
        if choices and text not in choices:
            *others, last = choices
            raise UsageError(f"{given}: use {', '.join(others)}{' or ' * bool(others)}{last}")
        try:
            if self.kind is float and self.declared.metavar == "SECONDS":
                return parse_seconds(text)
            return self.kind(text) if self.kind in (int, float) else text
        except UsageError as error:
            raise UsageError(f"{given}: {error.args[0]}") from None
        except ValueError:
            number = "a number" if self.kind is float else "a whole number"
            raise UsageError(f"{given} is not {number}") from None


class Command(NamedTuple):
    """The function of a command, and the options that it takes."""

    run: Callable[..., int]
    """Gets the operands, the options by name, and `origins`; returns the exit status."""
    options: Sequence[Option]


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
)
"""The option `--who`, of all commands that have it."""
Who = Annotated[str | None, TRAIL]
"""The trail that tells who made the changes."""
Output = Annotated[
    str, Opt("text (default) or json", "FORMAT", alias="-o", choices=("text", "json"))
]
"""The option of a command's output format."""


def flag(name: str) -> str:
    """Returns a parameter's option: `--max-records` for `max_records`."""
    return "--" + name.replace("_", "-")


def declared_by(function: Callable[..., object], *names: str, **own: str) -> list[Option]:
    """Returns the options that a function or a class declares: all, or those with these names.

    `own` replaces defaults.
    """
    found = [Option.of(each) for each in declared(function) if not names or each.name in names]
    for place, each in enumerate(found):
        if default := own.get(each.name):
            text = re.sub("default .*", f"default {default}", each.declared.help)
            found[place] = replace(
                each, default=default, declared=replace(each.declared, help=text)
            )
    return found


def values(function: Callable[..., object], options: Values) -> dict[str, Value]:
    """Returns the values that a function takes, as its keyword arguments."""
    return {each.name: options[each.name] for each in declared(function) if each.name in options}


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


def with_options(run: Callable[..., int], *parts: Iterable[Option]) -> Command:
    """Returns a command with its function's annotated parameters, and these in its `**values`."""
    signature = inspect.signature(run, eval_str=True)
    own = [
        Option.of(each)
        for each in signature.parameters.values()
        if typing.get_origin(each.annotation) is Annotated
    ]
    return Command(run, [*own, *(each for part in parts for each in part)])
