"""Reads the words of a command line with argparse: which options they give, and the operands."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Iterable, Sequence
from typing import NamedTuple, NoReturn

from watcher.cli.options import Option, Value
from watcher.errors import UsageError, did_you_mean


class Given(NamedTuple):
    """One option of a line."""

    parameter: str
    typed: str
    """The option's name as it stands there."""
    value: str | bool
    """Its text, or what its switch says."""


class Words(NamedTuple):
    """A line's options, operands, and unknown options."""

    given: list[Given]
    """The options, in the line's order."""
    rest: list[str]
    """The operands, and options that are unknown."""
    operands: list[str]
    """The words behind `--`."""


class Parser(argparse.ArgumentParser):
    """Raises UsageError in place of ending the program."""

    def error(self, message: str) -> NoReturn:
        """Raises UsageError."""
        raise UsageError(message)


class Taking(argparse.Action):
    """Notes what a line gives, so that its order is known, too."""

    def __call__(
        self,
        parser: object,
        namespace: argparse.Namespace,
        values: Value,
        option: str | None = None,
    ) -> None:
        """Notes an option."""
        value = self.const if self.nargs == 0 else values
        namespace.given.append(Given(self.dest, option or "", value))


def parser(options: Iterable[Option]) -> Parser:
    """Returns a parser of these options; the operands are left over."""
    made = Parser(
        prog="watcher",
        # One for all options: it asks for the terminal's size, and prints nothing here.
        formatter_class=functools.cache(argparse.HelpFormatter),
        add_help=False,
        allow_abbrev=False,
        exit_on_error=False,
    )
    for each in options:
        # The topic of --help may be left out.
        has_text = (each.declared.metavar or "").startswith("[GROUP")
        nargs = 0 if each.is_switch else "?" if has_text else None
        for names, value in ((each.names, True), (each.negatives, False)):
            if names:
                made.add_argument(
                    *names,
                    dest=each.name,
                    action=Taking,
                    nargs=nargs,
                    const=value if each.is_switch else "",
                    help=each.declared.help.replace("%", "%%"),
                )
    return made


def read(options: Sequence[Option], words: Sequence[str]) -> Words:
    """Returns what the words give. Raises UsageError for an option without its value."""
    end = words.index("--") if "--" in words else len(words)
    known = {name: each for each in options for name in (*each.names, *each.negatives)}
    for word in words[:end]:
        # argparse would take the beginning of a name with one dash for the name.
        begins = any(each[:2] != "--" and each.startswith(word) for each in known)
        if begins and word[1:] and word not in known and word[:2] not in known:
            refuse_unknown(known, [word])
    namespace = argparse.Namespace(given=[])
    try:
        _, rest = parser(options).parse_known_args(words[:end], namespace)
    except argparse.ArgumentError as error:
        flag = (error.argument_name or "").split("/")[0]
        metavar = known[flag].declared.metavar
        text = "it takes no value" if known[flag].is_switch else f"give a value ({metavar})"
        raise UsageError(text, flag) from None
    return Words(namespace.given, rest, [*words[end + 1 :]])


def refuse_unknown(
    known: Iterable[str], words: Sequence[str], commands: Iterable[str] = ()
) -> None:
    """Raises UsageError for an option without one of these names.

    Behind a first word like one of the commands, it may be that command's.
    """
    for word in words:
        name = word.partition("=")[0]
        # A dash alone is a file, and SQL may begin with a comment.
        if word[:1] == "-" and word != "-" and " " not in name.strip():
            dashes = name[: len(name) - len(name.lstrip("-"))]
            # Without them: they would make any two names alike.
            bare = [each.removeprefix(dashes) for each in known if each.startswith(dashes)]
            advice = did_you_mean(name.removeprefix(dashes), bare, dashes)
            advice = advice or did_you_mean(words[0], commands, "the command ")
            raise UsageError(f"unknown {name}{advice or '; --help lists the options'}")
