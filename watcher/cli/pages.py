"""`--help`: one screen for each group of options, and one to begin with."""

from __future__ import annotations

import argparse
import difflib
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from watcher import cli
from watcher.errors import UsageError

_LINES = 40
_HANDLERS = 12
_WIDTH = 79

GROUPS = {
    "handlers": "what is done with each change; modules in handlers/ are options",
    "start": "where to begin, and when to end",
    "filters": "which changes",
    "failures": "checkpoints, and what happens when something fails",
    "output": "how it is printed",
    "lambda": "AWS Lambda functions run as they are, with an event source mapping's settings",
    "spark": "on Spark",
    "aws": "where the stream is; as in the aws CLI",
}
"""Every group's page: `--help NAME`."""

_DEFAULTS = """\
Where an option is not given, its value comes from the first that has one of:

  1. the environment: WATCHER_ and the option's name, as in WATCHER_FROM=1h,
     WATCHER_ENDPOINT_URL=http://localhost:8000, WATCHER_UTC=1
  2. watcher.toml in the folder you work in
  3. ~/.config/watcher/config.toml (or $XDG_CONFIG_HOME/watcher/config.toml)

WATCHER_CONFIG=FILE is read in place of 2 and 3. A file has the options' names
without their dashes, and tables for one command each ([watch] is the default
command's):

  from = "1h"
  region = "eu-west-1"
  print-summary = true            # chooses a handler
  filter = ['{"eventName": ["INSERT"]}']

  [archive]
  every = "1m"

A switch is true or false; in the environment, 1 or 0. An option that can be
repeated has a list; in the environment, a line each, or a list in JSON.

The command line replaces defaults: --no-utc undoes utc = true, --follow undoes
no-follow = true, and any handler takes the place of those chosen by default.
"""

_COMPLETION = """\
TAB completes commands, options (those of the handlers found, too), their
values, files, functions for --call and --lambda, profiles and regions. It
never calls AWS, so it does not know tables.

  bash  echo 'eval "$(watcher completion bash)"' >> ~/.bashrc
  zsh   echo 'eval "$(watcher completion zsh)"' >> ~/.zshrc     # after compinit
  fish  echo 'watcher completion fish | source' >> ~/.config/fish/config.fish

The same completes `python -m watcher`: python's own completions, if the shell
has some, are asked for everything else that python is given.
"""

TEXTS = {"defaults": _DEFAULTS, "completion": _COMPLETION}
"""Pages that are not about a group of options."""

_EXAMPLES = """\
  python -m watcher orders --print-summary
  python -m watcher orders --from 2h --no-follow --print-json | jq .dynamodb
  python -m watcher orders --key PK=user-1 --only modify --print-diff
"""


class Formatter(argparse.HelpFormatter):
    """Options with their help beside them, however long their names."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=30)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        """A switch under the name it was declared by: what undoes it is told by `defaults`."""
        shown = getattr(action, "shown", None)
        return ", ".join(shown) if shown else super()._format_action_invocation(action)


class Help(argparse.Action):
    """`-h`, `--help`, `--help GROUP`."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        """Print the page, and end."""
        print(page(parser, str(values) if values else None), end="")
        parser.exit()


def add(parser: argparse.ArgumentParser) -> None:
    """The option itself."""
    parser.add_argument(
        "-h",
        "--help",
        action=Help,
        nargs="?",
        dest=argparse.SUPPRESS,
        default=argparse.SUPPRESS,
        metavar="GROUP",
        help="help; on a group of options; all",
    )


def page(parser: argparse.ArgumentParser, topic: str | None = None) -> str:
    """What is to be said on a topic; on a whole command, at most a screen. Raises UsageError."""
    if topic is None:
        whole = parser.format_help()
        if (name := parser.prog.rpartition(" ")[2]) in TEXTS:
            whole += "\n" + TEXTS[name]
        short = whole.count("\n") <= _LINES and parser.prog != cli.PROGRAM
        return whole if short else _front(parser)
    if topic in cli.COMMANDS:
        return page(cli.command(topic).parser([]))
    if topic == "all":
        return parser.format_help()
    if topic in TEXTS:
        return TEXTS[topic]
    groups = _groups(parser)
    if topic not in groups:
        near = difflib.get_close_matches(topic, [*groups, *TEXTS, *cli.COMMANDS], 1)
        advice = f"did you mean {near[0]}?" if near else "see --help"
        raise UsageError(f"no help on {topic}: {advice}")
    formatter = parser._get_formatter()
    formatter.add_usage(parser.usage, parser._actions, parser._mutually_exclusive_groups)
    _add_group(formatter, groups[topic])
    return formatter.format_help()


def topics(parser: argparse.ArgumentParser) -> list[str]:
    """What `--help` takes."""
    return [title for title in _groups(parser) if title in GROUPS] + [*TEXTS, "all"]


def _groups(parser: argparse.ArgumentParser) -> dict[str, argparse._ArgumentGroup]:
    """Those that have options, the command's own before the common ones."""
    groups = parser._action_groups
    found = {group.title: group for group in groups if group.title and group._group_actions}
    own = [title for title in found if title not in GROUPS]
    return {title: found[title] for title in [*own, *GROUPS] if title in found}


def _add_group(formatter: argparse.HelpFormatter, group: argparse._ArgumentGroup) -> None:
    formatter.start_section(group.title)
    formatter.add_text(group.description)
    formatter.add_arguments(group._group_actions)
    formatter.end_section()


def _front(parser: argparse.ArgumentParser) -> str:
    """Everything there is by its name."""
    groups = _groups(parser)
    top = [f"usage: {parser.usage}", "", *textwrap.wrap(parser.description or "", _WIDTH), ""]
    below = ["", "options (--help GROUP shows them; --help all; -v, --verbose; --version):"]
    below += [_row(title, _flags(group)) for title, group in groups.items() if title in GROUPS]
    if parser.prog == cli.PROGRAM:
        top += [*_EXAMPLES.splitlines(), ""]
        rows = [_row(name, text) for name, text in cli.COMMANDS.items()][1:-1]
        below = ["", "other commands (COMMAND --help):", *rows, *below]
        below += [_row("defaults", "files and variables that options are taken from")]
    if "handlers" in groups:
        top += ["handlers (each gets every change):"]
        middle = list(_handlers(groups["handlers"]))
        if len(middle) > _HANDLERS:
            middle[_HANDLERS:] = [f"  and {len(middle) - _HANDLERS} more: --help handlers"]
    else:  # the command's own options in full
        formatter = parser._get_formatter()
        for group in groups.values():
            if group.title not in GROUPS:
                _add_group(formatter, group)
        middle = formatter.format_help().splitlines()
    return "\n".join([*top, *middle, *below]) + "\n"


def _handlers(group: argparse._ArgumentGroup) -> Iterator[str]:
    """A line for each module."""
    for action in group._group_actions:
        if action.nargs == 0 and action.dest == "chosen":
            yield _row(", ".join(action.option_strings), action.help or "", 20)


def _flags(group: argparse._ArgumentGroup) -> str:
    """The options of a group, but for the modules, which have their own lines."""
    names = [
        (getattr(action, "shown", None) or action.option_strings)[0]
        for action in group._group_actions
        if action.nargs != 0 or action.dest != "chosen"
    ]
    return " ".join(names)


def _row(name: str, text: str, width: int = 12) -> str:
    text = text.replace("%%", "%")
    return f"  {name:<{width}} " + textwrap.shorten(text, _WIDTH - width - 3, placeholder=" ...")
