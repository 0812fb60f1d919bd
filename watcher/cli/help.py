"""`help`: the same as `--help`, for whoever looks for it there."""

from __future__ import annotations

from watcher import cli
from watcher.cli import options, pages


def parser(arguments: list[str]) -> options.Parser:
    """The topic: a command, or what `--help` takes."""
    made = options.parser("help", "Help on a command or a group of options.", "[TOPIC]")
    text = "a command or a group of options"
    topic = made.add_argument("topic", metavar="TOPIC", nargs="?", help=text)
    topic.values = (*cli.COMMANDS, *pages.GROUPS, *pages.TEXTS, "all")  # type: ignore[attr-defined]
    return made


def main(arguments: list[str]) -> int:
    """Print a page."""
    topic = parser(arguments).parse_args(arguments).topic
    print(pages.page(cli.command("watch").parser([]), topic), end="")
    return 0
