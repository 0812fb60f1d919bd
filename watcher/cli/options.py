"""Command-line options from the parameters they set: each is declared once, in `watch()`."""

from __future__ import annotations

import argparse
import difflib
import inspect
import logging
import re
import typing
from collections.abc import Callable, Iterable, Sequence
from types import NoneType, UnionType
from typing import Any, NoReturn

from watcher.cli import logs
from watcher.flag import Flag
from watcher.streams import Connection
from watcher.watching import watch

logger = logging.getLogger("watcher")

AWS = ("region", "profile", "endpoint_url")


# What people know from kubectl, the aws CLI and Kafka's tools, and what it is here.
_HABITS = {
    **dict.fromkeys(("--since", "--since-time", "--start", "--start-time"), "--from"),
    **dict.fromkeys(
        ("-f", "--follow"), "nothing: changes are followed unless --no-follow is given"
    ),
    **dict.fromkeys(("-n", "-c", "--limit", "--max-items", "--tail"), "--max-records"),
    **dict.fromkeys(("--query", "--jq"), "--jmespath"),
    **dict.fromkeys(("--filter-pattern", "--grep", "--selector", "-l"), "--filter"),
    **dict.fromkeys(("-o", "--output", "--json"), "--print-json"),
    **dict.fromkeys(("--event-name", "--type", "--kind"), "--only"),
    **dict.fromkeys(("-q", "--quiet", "--progress", "--no-progress"), "--no-status"),
    **dict.fromkeys(("--log-json", "--json-logs"), "--log-format json"),
    "--endpoint": "--endpoint-url",
    "--no-color": "--color never",
}


class Formatter(argparse.HelpFormatter):
    """Options with their help beside them, however long their names."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=30)


class Parser(argparse.ArgumentParser):
    """A parser that knows what a mistyped option was to be."""

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> argparse.Namespace:
        """As ever; an unknown option is an error that names the nearest one."""
        parsed: argparse.Namespace
        parsed, unknown = self.parse_known_args(args, namespace)
        if unknown:
            self.error(f"unknown {unknown[0]}" + self._advice(unknown[0].partition("=")[0]))
        return parsed

    def error(self, message: str) -> NoReturn:
        """Usage and message as ever; among JSON lines, a line of JSON."""
        if logs.is_json():
            logger.error(message, extra={"exit_status": 2})
            raise SystemExit(2)
        super().error(message)

    def _advice(self, word: str) -> str:
        habit = _HABITS.get(word)
        if habit and (habit.split()[0] in self._option_string_actions or ":" in habit):
            return f"; here it is {habit}"
        near = difflib.get_close_matches(word, self._option_string_actions, 1)
        return f"; did you mean {near[0]}?" if near else ""


def parser(command: str, description: str) -> Parser:
    """A parser as all commands have it."""
    made = Parser(
        prog=f"python -m watcher{command and ' '}{command}",
        description=description,
        formatter_class=Formatter,
        allow_abbrev=False,
    )
    made.add_argument("-v", "--verbose", action="store_true", help="more status, and tracebacks")
    logs.add_format(made)
    return made


def add(
    group: argparse._ActionsContainer,
    names: Iterable[str] | None = None,
    function: Callable[..., Any] = watch,
    **defaults: str,
) -> None:
    """Add the flags of a function's annotated parameters (all, or those of the given names).

    `defaults` are for a command whose own differ from the function's.
    """
    hints = typing.get_type_hints(function, include_extras=True)
    for name, parameter in inspect.signature(function).parameters.items():
        kind, flag = _annotation(hints[name])
        if flag is None or (names is not None and name not in names):
            continue
        option = flag.name or "--" + name.replace("_", "-")
        if kind is bool:
            action = "store_false" if parameter.default is True else "store_true"
            group.add_argument(option, dest=name, action=action, help=flag.help)
        else:
            required = parameter.default is inspect.Parameter.empty
            repeats = typing.get_origin(kind) is list
            group.add_argument(
                option,
                dest=name,
                action="append" if repeats else "store",
                type=typing.get_args(kind)[0] if repeats else kind,
                default=defaults.get(name, None if required else parameter.default),
                required=required,
                metavar=flag.metavar,
                help=_with_default(flag.help, defaults.get(name)),
            )


def _with_default(text: str, default: str | None) -> str:
    return text if default is None else re.sub("default .*", f"default {default}", text)


def flagged(function: Callable[..., Any] = watch) -> list[str]:
    """The names of a function's parameters that are options."""
    hints = typing.get_type_hints(function, include_extras=True)
    names = inspect.signature(function).parameters
    return [name for name in names if _annotation(hints[name])[1] is not None]


def chosen(arguments: argparse.Namespace, function: Callable[..., Any] = watch) -> dict[str, Any]:
    """What was parsed, as keyword arguments for that function."""
    return {name: getattr(arguments, name) for name in flagged(function) if name in arguments}


def connection(arguments: argparse.Namespace) -> Connection:
    """The AWS options."""
    return Connection(**{name: getattr(arguments, name) for name in AWS})


def _annotation(hint: Any) -> tuple[Callable[[str], Any], Flag | None]:
    """A parameter's plain type, and its flag where it is annotated with one."""
    if typing.get_origin(hint) is not typing.Annotated:
        return str, None
    kind, flag = typing.get_args(hint)[:2]
    if isinstance(kind, UnionType):
        kind = next(each for each in typing.get_args(kind) if each is not NoneType)
    return kind, flag
