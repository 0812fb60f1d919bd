"""The handlers as options: one flag for each handler module found."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from watcher.cli import options
from watcher.cli.command_line import OF_ALL, CommandLine
from watcher.cli.options import Option, Origins, Values, flag
from watcher.declared import Opt
from watcher.delivery.handler_modules import HandlerModule, find, function
from watcher.delivery.handler_modules import load as load_handler
from watcher.delivery.lambda_functions import lambda_function
from watcher.errors import UsageError, blame, blamed

if TYPE_CHECKING:
    from watcher.delivery.handler import Handler

logger = logging.getLogger("watcher")

DEFAULT_HANDLER = "print_record"

# Before the names of modules, and of their own options: watcher may have a parameter of that name.
_CHOSEN = "handler_"
_OWN = "option_of_handlers_"

_FOLDERS = Option(
    "handlers",
    list,
    None,
    Opt("one more folder of handler modules; repeatable", "DIR", "handlers"),
)
_CALL = Option(
    "call",
    list,
    None,
    Opt("call this function with every change; repeatable", "MODULE:FUNCTION", "handlers"),
)
_LAMBDA = Option(
    "lambda_",
    list,
    None,
    Opt(
        "call this function with Lambda's events and context, batch by batch; repeatable",
        "MODULE.FUNCTION",
        "lambda",
        name="--lambda",
    ),
)
_FORMATS = {
    "json": "print_json",
    "jsonl": "print_jsonl",
    "csv": "print_csv",
    "table": "print_table",
}
_OUTPUT = Option(
    "output",
    str,
    None,
    Opt(
        "short for the handler that prints it: json (DynamoDB's own, as --print-json), jsonl "
        "(plain JSON), csv, table",
        "FORMAT",
        "output",
        alias="-o",
        choices=tuple(_FORMATS),
    ),
)
CALLS = (_OUTPUT, _CALL, _LAMBDA, *options.declared_by(lambda_function))
"""The options that choose handlers beside the modules' flags."""


def find_handlers(line: CommandLine) -> dict[str, HandlerModule]:
    """Returns the handler modules that a command line can choose from. Raises UsageError."""
    folders, origin = line.peek(_FOLDERS)
    try:
        return find(map(Path, folders))
    except UsageError as error:
        raise UsageError(blamed(error, "--handlers", {"--handlers": origin})) from None


def flags(handlers: Iterable[HandlerModule], taken: Iterable[Option]) -> Iterator[Option]:
    """Yields each handler's flag, then its own options; `taken` are the command's options."""
    handlers = list(handlers)
    known = (*taken, *OF_ALL, _FOLDERS)
    names = {name for each in known for name in (*each.names, *each.negatives)}
    # Of several with the same initials it is the shortest's, a built-in one's first.
    owners = {
        each.initials: each.name
        for each in sorted(handlers, key=lambda each: (each.is_built_in, -len(each.name)))
    }
    own: set[str] = set()
    for handler in handlers:
        if handler.flag in names:
            # Nobody may want it: a folder called handlers can be another program's.
            logger.debug(f"{handler.path}: {handler.flag} is an option of watcher; rename the file")
            continue
        short = [each for each in (handler.initials,) if each is not None and each not in names]
        short = short if owners[handler.initials] == handler.name else []
        if not handler.takes_value:
            names.update((handler.flag, *short))
            shown = " ".join((handler.flag, *short))
            declared = Opt(handler.description, group="handlers", name=shown, negative="")
            yield Option(_CHOSEN + handler.name, bool, False, declared)
        for name in handler.options:
            if name in own:  # one that several declare is theirs together
                continue
            if flag(name) in names or not name.isidentifier():
                raise UsageError(
                    f"handler {handler.path}: {flag(name)} is an option of watcher; "
                    "choose another name"
                )
            own.add(name)
            names.add(flag(name))
            metavar, text = handler.options[name]
            group = "output" if handler.is_built_in and handler.takes_value else "handlers"
            declared = Opt(text, metavar, group, name=flag(name))
            yield Option(_OWN + name, bool if metavar is None else str, None, declared)
    yield _FOLDERS


class Choice:
    """The handlers that a command line chooses, and their options. Raises UsageError."""

    def __init__(
        self,
        handlers: Mapping[str, HandlerModule],
        origins: Origins,
        values: Values,
    ) -> None:
        # Those that are no options have an option of watcher's for their name.
        self._handlers = {
            name: each
            for name, each in handlers.items()
            if (_OWN if each.takes_value else _CHOSEN) + name in values
        }
        self._values = values
        self._own = {
            name.removeprefix(_OWN): value
            for name, value in values.items()
            if name.startswith(_OWN) and name in (*origins.typed, *origins.defaults)
        }
        choosing = (_CHOSEN, _OWN, _OUTPUT.name, _CALL.name, _LAMBDA.name)
        # If the command line says what to do, a default need not.
        is_typed = any(name.startswith(choosing) for name in origins.typed)
        self._chosen = [*dict.fromkeys(self._in_order(origins, is_typed))]
        for name in self._own:
            if not is_typed or _OWN + name in origins.typed:
                self._choose_owner(name)
        if not self.has_lambda:
            for each in options.declared_by(lambda_function):
                if each.name in origins.typed and values[each.name] != each.default:
                    text = f"{flag(each.name)} is a setting of --lambda: give the function too"
                    raise UsageError(text)

    @property
    def has_lambda(self) -> bool:
        """True if a Lambda function is chosen."""
        return any(name == _LAMBDA.name for name, _ in self._chosen)

    @property
    def chosen(self) -> list[str]:
        """Returns the chosen handlers as the user types them."""
        names = {_CALL.name: "--call ", _LAMBDA.name: "--lambda "}
        return [
            names[name] + value if name in names else self._handlers[value].flag
            for name, value in self._chosen
        ]

    def _in_order(self, origins: Origins, is_typed: bool) -> Iterator[tuple[str, str]]:
        """Yields the chosen handlers in the order of the line, or of files and the environment."""
        left = {each.name: list(self._values.get(each.name) or ()) for each in (_CALL, _LAMBDA)}
        for name in origins.typed if is_typed else origins.defaults:
            value = self._values.get(name)
            if name in left:
                count = 1 if is_typed else len(left[name])
                yield from ((name, each) for each in left[name][:count])
                del left[name][:count]
            elif name == _OUTPUT.name and value:
                yield _CHOSEN, _FORMATS[value]
            elif name.startswith(_CHOSEN) and value:
                yield _CHOSEN, name.removeprefix(_CHOSEN)

    def _choose_owner(self, option_name: str) -> None:
        """Chooses the handler that declares an option which the user gave."""
        owners = [each for each in self._handlers.values() if option_name in each.options]
        owners = [each for each in owners if each.name == option_name] or owners
        if any((_CHOSEN, owner.name) in self._chosen for owner in owners):
            return
        if len(owners) > 1:
            several = " and ".join(owner.flag for owner in owners)
            raise UsageError(f"{flag(option_name)} is an option of {several}: choose one of them")
        self._chosen.append((_CHOSEN, owners[0].name))

    def load(self, default: str | None = None) -> list[Handler]:
        """Returns the chosen handlers with their options; the default handler if none is chosen."""
        from watcher.delivery.handler import Handler

        made = []
        for name, value in self._chosen:
            if name == _CALL.name:
                with blame(name):
                    made.append(Handler(value, function(value, "record")))
            elif name == _LAMBDA.name:
                with blame(name):
                    settings = options.values(lambda_function, self._values)
                    made.append(lambda_function(value, **settings))
            else:
                handler = self._handlers[value]
                own = {key: each for key, each in self._own.items() if key in handler.options}
                try:
                    made.append(self._loaded(handler, own))
                except UsageError as error:
                    error.about = tuple(_OWN + key for key in error.about)
                    raise
        return made or [self._loaded(self._handlers[each], {}) for each in (default,) if each]

    def _loaded(self, handler: HandlerModule, own: Mapping[str, object]) -> Handler:
        from watcher.aws.config import AwsConfig  # not for help: it needs botocore

        aws = AwsConfig(self._values.get("region"), self._values.get("profile"))
        return load_handler(handler, own, aws)


def set_environment(streams: Iterable[str], values: Values) -> None:
    """Sets AWS_REGION and AWS_PROFILE for Lambda functions, which make their own clients."""
    named = (re.match(r"arn:[\w-]+:dynamodb:([\w-]+):", stream) for stream in streams)
    if region := values["region"] or next((each[1] for each in named if each), None):
        for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
            os.environ.setdefault(name, region)
    if values["profile"]:
        os.environ["AWS_PROFILE"] = values["profile"]
