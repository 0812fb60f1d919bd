"""Explains in one line what is wrong with a command line."""

from __future__ import annotations

import difflib
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from watcher.errors import UsageError, WatcherError

if TYPE_CHECKING:
    from cyclopts import Argument, CycloptsError

_KINDS = {int: "a whole number", float: "a number", bool: "yes or no"}


def explained(
    error: CycloptsError, words: Sequence[str], arguments: Iterable[Argument]
) -> UsageError:
    """Converts Cyclopts' error to a UsageError."""
    from cyclopts import (  # it has raised the error; the rest here does without
        Argument,
        CoercionError,
        MissingArgumentError,
        UnknownOptionError,
        UnusedCliTokensError,
    )

    match error:
        case UnknownOptionError() | UnusedCliTokensError():
            word = (error.unused_tokens or [""])[0]
            if isinstance(error, UnknownOptionError):
                word = error.token.keyword or error.token.value
            if word.startswith("-") and word not in _operands(words):
                return unknown(word, words, arguments)
            return UsageError(f"one word too many: {word}".replace("\0", ""))
        case MissingArgumentError(argument=Argument() as argument):
            if error.keyword is None:
                missing = [argument.name]
                if argument.index is not None:
                    missing = [each.name for each in arguments if _is_missing(each, argument.index)]
                return UsageError(f"the following arguments are required: {', '.join(missing)}")
            return UsageError(f"give a value ({argument.parameter.metavar})", error.keyword)
        case CoercionError(argument=Argument() as argument, token=token) if token is not None:
            given = f"{token.keyword or argument.name} {token.value}".replace("\0", "")
            if token.source != "cli":
                given = f"{token.source}: {token.value!r}"
            if choices := argument.get_choices(force=True):
                return UsageError(f"{given}: use {_either(choices)}")
            kind, *_ = (*typing.get_args(argument.hint), argument.hint)  # int of int | None
            return UsageError(f"{given} is not {_KINDS.get(kind, 'a possible value')}")
    return UsageError(str(error))


def _operands(words: Sequence[str]) -> Sequence[str]:
    """Returns the words after `--`, which are never options."""
    return words[words.index("--") + 1 :] if "--" in words else ()


def _whole(word: str, words: Sequence[str]) -> str:
    """Returns the word that holds a short option, as -v5 holds -5."""
    holders = (each for each in words if each[:2] != "--" and each[:1] == "-" and word[1:] in each)
    return word if word in words or len(word) > 2 else next(holders, word)


def _is_missing(operand: Argument, first: int | None) -> bool:
    """True for a required operand at or after the first missing one."""
    return operand.index is not None and operand.required and operand.index >= (first or 0)


def unknown(word: str, words: Sequence[str], arguments: Iterable[Argument]) -> UsageError:
    """Returns the error for an unknown option."""
    word = _whole(word, words).partition("=")[0]
    names = [name for each in arguments if each.index is None for name in each.names]
    return UsageError(f"unknown {word}{did_you_mean(word, names) or '; --help lists the options'}")


def did_you_mean(word: str, names: Iterable[str], what: str = "") -> str:
    """Returns a question for the name that is nearest to a word; "" where none is near."""
    found = difflib.get_close_matches(word, [*names], 1)
    return f"; did you mean {what}{found[0]}?" if found else ""


def _either(words: Sequence[str]) -> str:
    *before, last = words
    return f"{', '.join(before)} or {last}" if before else last


def blamed(error: WatcherError, flag: str | None, origins: Mapping[str, str | None]) -> str:
    """Returns an error's text with the option to blame and the sources of options' values."""
    parts = [
        f"from {origin}" if name == flag else f"{name} is from {origin}"
        for name, origin in origins.items()
        if origin
    ]
    return f"{error.blaming(flag)} ({', '.join(parts)})" if parts else error.blaming(flag)
