"""Command-line options from the parameters they set: each is declared once, in `watch()`."""

from __future__ import annotations

import argparse
import difflib
import inspect
import logging
import re
import sys
import typing
from collections.abc import Callable, Iterable, Sequence
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, NoReturn

import watcher
from watcher import cli
from watcher.cli import defaults, logs, pages
from watcher.cli.synonyms import translated
from watcher.flag import Flag
from watcher.watching import watch

if TYPE_CHECKING:
    from watcher.service.connection import Connection

logger = logging.getLogger("watcher")

AWS = ("region", "profile", "endpoint_url")
# They have no options, and help where a file of defaults is broken.
_WITHOUT_DEFAULTS = ("completion", "help")


# What people know from kubectl, stern, kcat, jq, gh, the aws CLI and Kafka's tools, and what comes
# nearest here (synonyms.py has what is the same): options that the command has, or a sentence.
_HABITS = {
    **dict.fromkeys(("-s", "--start", "--offset", "--shard-iterator-type"), "--from"),
    **dict.fromkeys(("-b", "--from-beginning", "--beginning", "--earliest"), "--from trim-horizon"),
    "-e": "--no-follow",
    **dict.fromkeys(("-c", "-L", "--count", "--page-size", "--head"), "--max-records"),
    **dict.fromkeys(
        ("--tail", "--lines"), "--from, an age, with --max-records: changes come oldest first"
    ),
    **dict.fromkeys(("--end", "--end-time", "--until", "--to-time"), "--no-follow: up to now"),
    **dict.fromkeys(("-q", "--template"), "--jmespath"),
    **dict.fromkeys(
        ("--filter-pattern", "--filters", "--grep", "--selector", "--where", "-l"), "--filter"
    ),
    **dict.fromkeys(("-i", "--include", "--exclude", "--filter-expression"), "--filter"),
    **dict.fromkeys(("-o", "-J", "-r", "--output", "--raw", "--raw-output"), "--print-json"),
    **dict.fromkeys(("--format", "--pretty"), "--print-record, --print-summary or --print-json"),
    **dict.fromkeys(("--type", "--kind", "--event"), "--only"),
    **dict.fromkeys(("-k", "--pk", "--keys", "--partition-key", "--key-condition"), "--key"),
    **dict.fromkeys(("--log-level", "--trace"), "--verbose"),
    **dict.fromkeys(("--quiet", "--silent"), "2>/dev/null: status goes to stderr, data to stdout"),
    **dict.fromkeys(("--progress", "--no-progress"), "--no-status"),
    **dict.fromkeys(("--log-json", "--json-logs"), "--log-format json"),
    **dict.fromkeys(("--timestamps", "-t"), "--print-summary, which has the time"),
    **dict.fromkeys(("--timezone", "--tz"), "--utc"),
    **dict.fromkeys(("--function", "--function-name", "--handler"), "--call or --lambda"),
    **dict.fromkeys(("--state", "--offsets-file", "--resume", "--group"), "--checkpoint"),
    **dict.fromkeys(("--interval", "--poll-interval", "--sleep"), "--poll"),
    **dict.fromkeys(("--strict", "--fail-on-error"), "--on-error stop"),
    **dict.fromkeys(("--out-file", "--outfile", "--to"), "--jsonl-file"),
    **dict.fromkeys(
        ("--stream", "--stream-arn", "--stream-name", "--table", "--table-name", "--topic"),
        "the first word: python -m watcher orders",
    ),
    **dict.fromkeys(("--config", "--config-file"), "a variable: WATCHER_CONFIG=FILE"),
    **dict.fromkeys(
        ("--no-cli-pager", "--no-pager", "--no-paginate"), "nothing: there is no pager"
    ),
    **dict.fromkeys(("--url", "--host"), "--endpoint-url"),
    **dict.fromkeys(("--monochrome-output", "-M"), "--color never"),
    **dict.fromkeys(("-C", "--color-output"), "--color always"),
    **dict.fromkeys(("--bisect-batch-on-function-error", "--bisect-batch"), "--bisect"),
    "--maximum-batching-window-in-seconds": "--batch-window",
    "--maximum-retry-attempts": "--retries",
    "--maximum-record-age-in-seconds": "--max-age",
    "--lambda-handler": "--lambda",
    **dict.fromkeys(
        ("--dead-letter", "--destination-config", "--on-failure"), "--on-error dead-letter:FILE"
    ),
    **dict.fromkeys(
        ("--ca-bundle", "--no-verify-ssl"), "a variable: AWS_CA_BUNDLE=FILE, the certificates"
    ),
    "-V": "--version",
}


class Switch(argparse.Action):
    """`--utc`, and `--no-utc` that undoes a default; `--no-follow` and `--follow` likewise."""

    def __init__(self, option_strings: Sequence[str], dest: str, **keywords: Any) -> None:
        self.shown = list(option_strings)
        self.undo = _counterpart(option_strings[-1])
        self.on = keywords.get("default") is not True
        """What the declared option means."""
        super().__init__([*option_strings, self.undo], dest, nargs=0, **keywords)

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        """Set what the option given means."""
        setattr(namespace, self.dest, self.on != (option_string == self.undo))


def _counterpart(option: str) -> str:
    bare = option.removeprefix("--no-")
    return f"--{bare}" if bare != option else f"--no-{option.removeprefix('--')}"


class Parser(argparse.ArgumentParser):
    """A parser that knows the defaults of files and the environment, and helps with mistakes."""

    def __init__(self, command: str, description: str, operands: str) -> None:
        prog = f"{cli.PROGRAM} {command}".strip()
        usage = f"{prog} {operands} [options]".replace("  ", " ")
        super().__init__(
            prog=prog,
            usage=usage,
            description=description,
            formatter_class=pages.Formatter,
            allow_abbrev=False,
            add_help=False,
        )
        self.command = command or "watch"
        self.required: set[str] = set()
        """The options that have to be given, here or as a default."""

    def group(self, name: str) -> argparse._ArgumentGroup:
        """The group of that name, made when it is first asked for."""
        for group in self._action_groups:
            if group.title == name:
                return group
        return self.add_argument_group(name, pages.GROUPS.get(name))

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> argparse.Namespace:
        """As ever, with defaults; an unknown option is an error that names the nearest one."""
        optional = [action for action in self._actions if action.option_strings]
        dests = {action.dest for action in optional} - {argparse.SUPPRESS}
        # None, so that what was given can be told from what was not.
        given = argparse.Namespace(**dict.fromkeys(dests))
        words = translated(sys.argv[1:] if args is None else args, self._option_string_actions)
        parsed, unknown = self.parse_known_args(words, given)
        if unknown and self.command == "watch" and not unknown[0].startswith("-"):
            names = ", ".join(cli.COMMANDS)
            self.error(f"no command {parsed.stream}, and STREAM is one word; commands: {names}")
        if unknown:
            self.error(f"unknown {unknown[0]}" + self._advice(unknown[0].partition("=")[0]))
        if self.command not in _WITHOUT_DEFAULTS:
            defaults.fill(self, parsed)
        for action in optional:
            if action.dest in dests and getattr(parsed, action.dest) is None:
                if action.dest in self.required:
                    self.error(f"the following arguments are required: {action.option_strings[0]}")
                delattr(parsed, action.dest)
                if action.default is not argparse.SUPPRESS:
                    setattr(parsed, action.dest, action.default)
                dests.remove(action.dest)
        return parsed

    def error(self, message: str) -> NoReturn:
        """Usage and message as ever; among JSON lines, a line of JSON."""
        if logs.is_json():
            logger.error(message, extra={"exit_status": 2})
            raise SystemExit(2)
        super().error(message)

    def keys(self) -> dict[str, argparse.Action]:
        """The options by their names without dashes, as files and the environment have them."""
        return {
            option[2:]: action
            for action in self._actions
            for option in action.option_strings
            if option.startswith("--") and action.dest not in (argparse.SUPPRESS, "version")
        }

    def _advice(self, word: str) -> str:
        habit = _HABITS.get(word)
        known = habit and re.split("[ ,:]", habit)[0] in self._option_string_actions
        if habit and (known or not habit.startswith("--")):
            return f"; here it is {habit}"
        near = difflib.get_close_matches(word, self._option_string_actions, 1)
        return f"; did you mean {near[0]}?" if near else "; --help lists what there is"


def parser(command: str, description: str, operands: str = "") -> Parser:
    """A parser as all commands have it; `operands` is what stands before its options."""
    made = Parser(command, description, operands)
    made.add_argument(
        "-v", "--verbose", action=Switch, default=False, help="more status, and tracebacks"
    )
    logs.add_format(made.group("output"))
    pages.add(made)
    version = f"watcher {watcher.__version__}"
    made.add_argument("--version", action="version", version=version, help="the version")
    return made


def add_stream(made: Parser) -> None:
    """The STREAM that most commands are about."""
    made.add_argument("stream", metavar="STREAM", help="a stream ARN, a table ARN or a table name")


def add(
    made: Parser,
    group: str,
    names: Iterable[str] | None = None,
    function: Callable[..., Any] = watch,
    **own: str,
) -> None:
    """Add the flags of a function's annotated parameters (all, or those of the given names).

    Each goes into its own group, or where it has none, into the given one. `own` are the defaults
    of a command whose own differ from the function's.
    """
    for name, parameter in inspect.signature(function).parameters.items():
        kind, flag = _annotation(function, parameter)
        if flag is None or (names is not None and name not in names):
            continue
        option = flag.name or "--" + name.replace("_", "-")
        into = made.group(flag.group or group)
        action: argparse.Action
        if kind is bool:
            action = into.add_argument(
                option, dest=name, action=Switch, default=parameter.default, help=flag.help
            )
        else:
            required = parameter.default is inspect.Parameter.empty
            if required:
                made.required.add(name)
            repeats = typing.get_origin(kind) is list
            action = into.add_argument(
                option,
                dest=name,
                action="append" if repeats else "store",
                type=typing.get_args(kind)[0] if repeats else kind,
                default=own.get(name, None if required else parameter.default),
                metavar=flag.metavar,
                help=_with_default(flag.help, own.get(name)),
            )
        action.values = flag.values  # type: ignore[attr-defined]


def _with_default(text: str, default: str | None) -> str:
    return text if default is None else re.sub("default .*", f"default {default}", text)


def flagged(function: Callable[..., Any] = watch) -> list[str]:
    """The names of a function's parameters that are options."""
    parameters = inspect.signature(function).parameters
    return [name for name, each in parameters.items() if _annotation(function, each)[1] is not None]


def chosen(arguments: argparse.Namespace, function: Callable[..., Any] = watch) -> dict[str, Any]:
    """What was parsed, as keyword arguments for that function."""
    return {name: getattr(arguments, name) for name in flagged(function) if name in arguments}


def connection(arguments: argparse.Namespace) -> Connection:
    """The AWS options."""
    from watcher.service.connection import Connection

    return Connection(**{name: getattr(arguments, name) for name in AWS})


def _annotation(
    function: Callable[..., Any], parameter: inspect.Parameter
) -> tuple[Callable[[str], Any], Flag | None]:
    """A parameter's plain type, and its flag where it is annotated with one."""
    hint = parameter.annotation
    if isinstance(hint, str):
        try:
            hint = eval(hint, inspect.unwrap(function).__globals__)  # noqa: S307 - our own source
        except NameError:  # a type that is only there for the type checker: no option's
            return str, None
    if typing.get_origin(hint) is not typing.Annotated:
        return str, None
    kind, flag = typing.get_args(hint)[:2]
    if isinstance(kind, UnionType):
        kind = next(each for each in typing.get_args(kind) if each is not NoneType)
    return kind, flag
