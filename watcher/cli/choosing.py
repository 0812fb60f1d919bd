"""The handlers as options: one flag for each module that is found."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

from watcher.errors import UsageError
from watcher.handlers import Handler


def folders(arguments: list[str]) -> list[Path]:
    """The `--handlers` folders: needed before the flags of what is in them can be parsed."""
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    first.add_argument("--handlers", action="append", type=Path, default=[])
    try:
        given: list[Path] = first.parse_known_args(arguments)[0].handlers
    except argparse.ArgumentError as error:
        raise UsageError(str(error)) from None
    return given


def add_folders(group: argparse._ActionsContainer) -> None:
    """The `--handlers` option itself; `folders` has read it already."""
    group.add_argument(
        "--handlers",
        dest="folders",
        metavar="DIR",
        action="append",
        help="one more folder of handler modules; repeatable",
    )


def add_flags(group: argparse._ActionsContainer, handlers: Iterable[Handler]) -> None:
    """A flag for each handler; those given are `chosen`, by name."""
    taken: set[str] = set()
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
            raise UsageError(
                f"handler {handler.path}: {handler.flag} is an option of watcher; rename the file"
            ) from None
