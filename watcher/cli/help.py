"""`--help` and `help`: one screen to begin with, and one for each group of options."""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated

from watcher.cli.command_line import (
    COMMANDS,
    GROUPS,
    PROGRAM,
    TOPICS,
    CommandLine,
    parameters,
    sentence,
)
from watcher.cli.options import Command, Option, with_options
from watcher.declared import Opt
from watcher.delivery.handler_modules import find
from watcher.errors import UsageError

_LINES = 40
_WIDTH = 79
_INDENT = 30

_DEFAULTS = """\
Where an option is not given, its value comes from the first that has one of:

  1. the environment: WATCHER_ and the option's name, as in WATCHER_FROM=1h,
     WATCHER_ENDPOINT_URL=http://localhost:8000, WATCHER_UTC=1
  2. ~/.config/watcher/config.toml (or $XDG_CONFIG_HOME/watcher/config.toml);
     WATCHER_CONFIG=FILE is read in its place

The file has the options' names without their dashes, and tables for one command
each ([watch] is the default command's):

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

_EXAMPLES = """\
  python -m watcher orders --print-summary
  python -m watcher orders --from 2h --no-follow --print-json | jq .dynamodb
  python -m watcher orders --key PK=user-1 --only modify --print-diff
"""


def help_command(line: CommandLine) -> Command:
    """Prints the same pages as `--help`."""
    return with_options(_help)


def _help(
    topic: Annotated[str, Opt("what it is about", name="[TOPIC]")] = "", /, **_: object
) -> int:
    print(page(CommandLine("watch"), topic), end="")
    return 0


def page(line: CommandLine, topic: str = "") -> str:
    """Returns help on a topic, or at most a screen on a whole command. Raises UsageError."""
    if topic in COMMANDS:
        line, topic = CommandLine(topic), ""
    name = line.name
    if topic == "defaults":
        return _DEFAULTS
    groups = _groups(parameters(line))
    taken = groups.pop("arguments")
    operands = [name for each in taken for name in each.flags] + ["[--HANDLER ...]"] * (
        "handlers" in groups
    )
    is_watch = name == "watch"
    usage = " ".join(["usage:", PROGRAM, *([] if is_watch else [name]), *operands, "[options]\n"])
    top = f"{usage}\n{textwrap.fill(sentence(name), _WIDTH)}\n"
    if topic:
        shown = {"arguments": taken, **groups}
        if topic != "all" and topic not in groups:
            near = difflib.get_close_matches(topic, [*groups, *TOPICS, *COMMANDS], 1)
            advice = f"did you mean {near[0]}?" if near else "see --help"
            raise UsageError(f"no help on {topic}: {advice}")
        if topic == "all":
            return top + _sections(shown)
        return usage + _sections({topic: groups[topic]})
    if is_watch:
        return "\n".join([top, *_EXAMPLES.splitlines(), "", *_commands(), *_front(groups), ""])
    own = {"arguments": taken} if taken else {}
    text = top + _sections(own | groups)
    if text.count("\n") <= _LINES:
        return text
    own["options"] = groups.pop("options")
    return "\n".join([top + _sections(own), *_front(groups), ""])


def _groups(options: Iterable[Option]) -> dict[str, list[Option]]:
    """Returns the groups that have options, the command's own before the common ones."""
    found: dict[str, list[Option]] = {"arguments": []}
    for each in options:
        group = each.declared.group if each.declared.group in GROUPS else "options"
        found.setdefault("arguments" if each.is_operand else str(group), []).append(each)
    return {title: found[title] for title in ["arguments", "options", *GROUPS] if title in found}


def _sections(groups: Mapping[str, Sequence[Option]]) -> str:
    """Returns groups in full."""
    lines: list[str] = []
    for title, members in groups.items():
        about = [f"  {GROUPS[title]}", ""] if title in GROUPS else []
        lines += ["", f"{title}:", *about, *_rows(members)]
    return "\n".join([*lines, ""])


def _rows(options: Sequence[Option]) -> Iterator[str]:
    """Yields options with their help beside them, or below where their names are long."""
    for each in options:
        has_value = not (each.is_operand or each.is_switch)
        label = "  " + ", ".join(each.shown) + f" {each.declared.metavar}" * has_value
        lines = textwrap.wrap(each.declared.help, _WIDTH - _INDENT, break_on_hyphens=False)
        if len(label) > _INDENT - 2:
            yield label
            label = ""
        for line in lines:
            yield f"{label:<{_INDENT}}{line}"
            label = ""


def _commands() -> Iterator[str]:
    """Yields a line for each of the other commands."""
    yield "other commands (COMMAND --help):"
    for name, command in COMMANDS.items():
        if name not in ("watch", "help"):
            yield _row(name, command.summary)
    yield ""


def _front(groups: Mapping[str, Sequence[Option]]) -> Iterator[str]:
    """Yields one line for each group of options, the user's own handlers first."""
    yield "options (--help GROUP shows them; --help all; -v, --verbose; -q, --quiet; -V):"
    own = {each.flag for each in find().values() if not each.is_built_in}
    for title in filter(GROUPS.__contains__, groups):
        names = [each.shown[0] for each in groups[title]]
        yield _row(title, " ".join(sorted(names, key=lambda name: name not in own)))
    yield _row("defaults", "files and variables that options are taken from")


def _row(name: str, text: str) -> str:
    return f"  {name:<12} " + textwrap.shorten(text, _WIDTH - 15, placeholder=" ...")
