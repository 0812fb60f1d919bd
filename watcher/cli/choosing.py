"""The handlers as options: one flag for each module that is found."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cyclopts import Parameter

from watcher.cli import commands, options
from watcher.cli.options import Given, option
from watcher.delivery.handlers import Handler, find, function
from watcher.delivery.handlers import load as load_handler
from watcher.delivery.lambdas import lambda_function
from watcher.errors import UsageError, blame

if TYPE_CHECKING:
    from inspect import Parameter as Option

    from watcher.delivery.observer import Observer

logger = logging.getLogger("watcher")

# Before the names of modules, and of their own options: watcher may have a parameter of that name.
_CHOSEN = "handler_"
_OWN = "option_of_handlers_"

_FOLDERS = option(
    "handlers",
    list[str],
    None,
    Parameter(
        metavar="DIR", group="handlers", help="one more folder of handler modules; repeatable"
    ),
)
_CALL = option(
    "call",
    list[str],
    None,
    Parameter(
        metavar="MODULE:FUNCTION",
        group="handlers",
        help="call this function with every change; repeatable",
    ),
)
_LAMBDA = option(
    "lambda_",
    list[str],
    None,
    Parameter(
        name="--lambda",
        metavar="MODULE.FUNCTION",
        group="lambda",
        help="call this function with Lambda's events and context, batch by batch; repeatable",
    ),
)
CALLS = (_CALL, _LAMBDA, *options.of(lambda_function))
"""Functions beside the modules."""


def found(name: str, words: Sequence[str]) -> dict[str, Handler]:
    """The handlers there are for a command line. Raises UsageError."""
    return find(Path(each) for each in commands.first(name, words, _FOLDERS) or ())


def flags(handlers: Iterable[Handler], taken: Iterable[Option]) -> Iterator[Option]:
    """An option for each handler, followed by its own; `taken` are those of the command."""
    names = {name for each in taken for name in _names(each)}
    own: set[str] = set()
    for handler in handlers:
        if handler.flag in names:
            # Nobody may want it: a folder called handlers can be another program's.
            logger.debug(f"{handler.path}: {handler.flag} is an option of watcher; rename the file")
            continue
        short = [handler.initials] if handler.initials not in (None, *names) else []
        names.update((handler.flag, *short))
        told = Parameter(
            name=(handler.flag, *short), negative=(), group="handlers", help=handler.description
        )
        yield option(_CHOSEN + handler.name, bool, False, told)
        for name, (metavar, text) in handler.options.items():
            if name in own:  # one that several declare is theirs together
                continue
            if _flag(name) in names or not name.isidentifier():
                raise UsageError(
                    f"handler {handler.path}: {_flag(name)} is an option of watcher; "
                    "choose another name"
                )
            own.add(name)
            names.add(_flag(name))
            told = Parameter(name=_flag(name), metavar=metavar, group="handlers", help=text)
            yield option(_OWN + name, bool if metavar is None else str, None, told)
    yield _FOLDERS


def _names(parameter: Option) -> Sequence[str]:
    """What an option is called; a switch's counterpart too."""
    (about,) = parameter.annotation.__metadata__
    name = _flag(parameter.name)
    bare = name.removeprefix("--")
    return [*(about.name or (name,)), *about.alias, *(about.negative or (f"--no-{bare}",))]


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


class Choice:
    """What a command line chooses to be done with each change."""

    def __init__(
        self, handlers: Mapping[str, Handler], given: Given, values: Mapping[str, Any]
    ) -> None:
        self._handlers = handlers
        self._values = values
        self._given = given
        self._own = {
            name.removeprefix(_OWN): value
            for name, value in values.items()
            if name.startswith(_OWN) and value is not None
        }
        choosing = (_CHOSEN, _OWN, _CALL.name, _LAMBDA.name)
        anything = any(name.startswith(choosing) for name in given.typed)
        self._by_default: set[str] = set() if not anything else set(given.origins)
        """What files and variables say in vain: the command line chooses."""
        self.chosen = [*self._in_order()]
        """Each as the parameter that chooses it, and its value."""
        self._add_owners()

    @property
    def has_lambda(self) -> bool:
        """Whether a Lambda function is among them."""
        return any(name == _LAMBDA.name for name, _ in self.chosen)

    @property
    def flags(self) -> str:
        """The handlers as they are chosen on the command line."""
        return " ".join(self._handlers[value].flag for name, value in self.chosen if name == _CHOSEN)

    def _in_order(self) -> Iterator[tuple[str, str]]:
        """As they stand in the line, or else in the files."""
        by_flag = {_flag(_CALL.name): _CALL.name, "--lambda": _LAMBDA.name}
        for handler in self._handlers.values():
            by_flag |= dict.fromkeys(filter(None, (handler.flag, handler.initials)), handler.name)
        words = list(self._given.words)
        before = words[: words.index("--")] if "--" in words else words
        names = [by_flag.get(word.partition("=")[0], "") for word in before]
        names += [name.removeprefix(_CHOSEN) for name in self._given.origins]
        left = {each.name: list(self._values.get(each.name) or ()) for each in (_CALL, _LAMBDA)}
        for name in filter(None, names):
            if name in left:
                skip = name in self._by_default
                taken, left[name] = (left[name][:1], left[name][1:]) if name in self._given.typed else (left[name], [])
                yield from ((name, value) for value in taken if not skip)
            elif self._values.get(_CHOSEN + name) and _CHOSEN + name not in self._by_default:
                yield _CHOSEN, name
