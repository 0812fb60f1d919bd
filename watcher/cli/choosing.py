"""The handlers as options: one flag for each module that is found."""

from __future__ import annotations

import argparse
import inspect
import logging
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from watcher.cli import defaults, options
from watcher.delivery.handlers import Handler, function
from watcher.delivery.handlers import load as load_handler
from watcher.delivery.lambdas import lambda_function
from watcher.errors import UsageError

if TYPE_CHECKING:
    from watcher.delivery.observer import Observer

logger = logging.getLogger("watcher")

# Before a handler's own option in what was parsed: watcher may have a parameter of that name.
_PREFIX = "option of a handler: "


def folders(arguments: list[str], command: str = "watch") -> list[Path]:
    """The `--handlers` folders: needed before the flags of what is in them can be parsed."""
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    first.add_argument("--handlers", action="append", type=Path, default=[])
    try:
        given: list[Path] = first.parse_known_args(arguments)[0].handlers
    except argparse.ArgumentError as error:
        raise UsageError(str(error)) from None
    return given or [Path(each) for each in defaults.lines(defaults.raw(command, "handlers") or [])]


def add_folders(group: argparse._ActionsContainer) -> None:
    """The `--handlers` option itself; `folders` has read it already."""
    group.add_argument(
        "--handlers",
        dest="folders",
        metavar="DIR",
        action="append",
        help="one more folder of handler modules; repeatable",
    )


class Call(NamedTuple):
    """A function to call with each change, chosen by its name."""

    name: str


class Lambda(NamedTuple):
    """A Lambda function to call with batches of changes, chosen by its name."""

    name: str


def add_calls(made: options.Parser) -> None:
    """`--call` and `--lambda`: functions beside the modules, in the order given."""
    made.group("handlers").add_argument(
        "--call",
        dest="chosen",
        type=Call,
        metavar="MODULE:FUNCTION",
        action="append",
        help="call this function with every change; repeatable",
    )
    made.group("lambda").add_argument(
        "--lambda",
        dest="chosen",
        type=Lambda,
        metavar="MODULE.FUNCTION",
        action="append",
        help="call this function with Lambda's events and context, batch by batch; repeatable",
    )
    options.add(made, "lambda", function=lambda_function)


def add_flags(group: argparse._ActionsContainer, handlers: Iterable[Handler]) -> None:
    """A flag for each handler, followed by its own options; those given are `chosen`, by name."""
    taken: set[str] = set()
    shared: set[str] = set()
    for handler in handlers:
        flags = [handler.flag]
        if handler.initials and handler.initials not in taken:
            flags.append(handler.initials)
        taken.update(flags)
        try:
            group.add_argument(
                *flags,
                dest="chosen",
                action="append_const",
                const=handler.name,
                help=handler.description.replace("%", "%%"),
            )
        except argparse.ArgumentError:
            # Nobody may want it: a folder called handlers can be another program's.
            logger.debug(f"{handler.path}: {handler.flag} is an option of watcher; rename the file")
            continue
        for name in handler.options:
            if name not in shared:
                _add_option(group, handler, name)
        shared.update(handler.options)


def _add_option(group: argparse._ActionsContainer, handler: Handler, name: str) -> None:
    """An option that a module declares; one that several declare is theirs together."""
    metavar, text = handler.options[name]
    keywords: dict[str, Any] = {"action": options.Switch}
    if metavar is not None:
        keywords = {"metavar": metavar}
    try:
        group.add_argument(
            _flag(name),
            dest=_PREFIX + name,
            default=argparse.SUPPRESS,
            help=text.replace("%", "%%"),
            **keywords,
        )
    except (argparse.ArgumentError, ValueError):
        raise UsageError(
            f"handler {handler.path}: {_flag(name)} is an option of watcher; choose another name"
        ) from None


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _refuse_settings_of_no_lambda(parsed: argparse.Namespace) -> None:
    if any(isinstance(each, Lambda) for each in parsed.chosen or []):
        return
    for name, parameter in inspect.signature(lambda_function).parameters.items():
        if name in defaults.of(parsed):  # for runs that have one
            continue
        if getattr(parsed, name, parameter.default) != parameter.default:
            raise UsageError(f"{_flag(name)} is a setting of --lambda: give the function too")


def set_region(parsed: argparse.Namespace) -> None:
    """Lambda functions make their clients when they are imported, and expect the region set."""
    named = re.match(r"arn:[\w-]+:dynamodb:([\w-]+):", parsed.stream)
    region = parsed.region or (named and named[1])
    if region and any(isinstance(each, Lambda) for each in parsed.chosen or []):
        for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
            os.environ.setdefault(name, region)


def _anything_chosen(parsed: argparse.Namespace, given: Iterable[str]) -> bool:
    """Whether the command line says what to do, so that a default need not."""
    names = {_PREFIX + option for option in given} | ({"chosen"} if parsed.chosen else set())
    return not names <= defaults.of(parsed)


def load(parsed: argparse.Namespace, handlers: dict[str, Handler]) -> list[Observer]:
    """Load the handlers chosen, each with those of its options that were given.

    An option chooses its handler too, but a default only where nothing else is chosen.
    Raises UsageError.
    """
    chosen: list[str | Call | Lambda] = list(parsed.chosen or [])
    given = {
        name.removeprefix(_PREFIX): value
        for name, value in vars(parsed).items()
        if name.startswith(_PREFIX)
    }
    others = defaults.of(parsed) if _anything_chosen(parsed, given) else set()
    for option in given:
        owners = [name for name, handler in handlers.items() if option in handler.options]
        if _PREFIX + option in others:
            continue
        if not set(owners) & set(chosen):
            if len(owners) > 1:
                flags = " and ".join(handlers[name].flag for name in owners)
                raise UsageError(f"{_flag(option)} is an option of {flags}: choose one of them")
            chosen += owners
    _refuse_settings_of_no_lambda(parsed)
    from watcher.delivery.observer import Observer

    made = []
    for each in chosen:
        if isinstance(each, Call):
            made.append(Observer(each.name, function(each.name, "record")))
        elif isinstance(each, Lambda):
            made.append(lambda_function(each.name, **options.chosen(parsed, lambda_function)))
        else:
            own = handlers[each].options
            made.append(
                load_handler(handlers[each], {key: given[key] for key in given if key in own})
            )
    return made
