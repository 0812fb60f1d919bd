"""Explains in one line what is wrong with a command line."""

from __future__ import annotations

import difflib
import itertools
import os
import re
import typing
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from watcher.cli import synonyms
from watcher.errors import UsageError, WatcherError

if TYPE_CHECKING:
    from cyclopts import Argument, CycloptsError

# "prefix" is to "profile" what 0.77 says.
_CLOSE = 0.8
# NAME=VALUE, and parts of JSON
_PIECE = re.compile(r"[\w.-]+=\S*|[\[{\"]\S*|\S+[\]}\",]")
_LITTLE = {"as", "for", "in", "no", "of", "on", "the", "to", "when", "with"}
_TYPO = 0.87
# A word in more options' help than this says little.
_TOO_MANY = 5
_AGE = re.compile(r"-\d+[smhdw]")
_PAIR = re.compile(r"[\w.-]+=")
_KINDS = {int: "a whole number", float: "a number", bool: "yes or no"}


def explained(
    error: CycloptsError,
    words: Sequence[str],
    arguments: Iterable[Argument],
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
            return _one_too_many(word.replace("\0", ""), words, arguments)
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
                say = synonyms.of_value(token.value, choices)
                other = f"; or say {say}" if say else ""
                return UsageError(f"{given}: use {_either(choices)}{other}")
            kind, *_ = (*typing.get_args(argument.hint), argument.hint)  # int of int | None
            return UsageError(f"{given} is not {_KINDS.get(kind, 'a possible value')}")
    return UsageError(str(error))


def _one_too_many(word: str, words: Sequence[str], arguments: Iterable[Argument]) -> UsageError:
    refuse_pieces([word], words, arguments)
    first = next((each.name for each in arguments if each.index is not None), "")
    only = "; it is about one STREAM" if first == "STREAM" else ""
    if any("--table" in each.names for each in arguments):
        only = f"; say --table {word}"
    return UsageError(f"one word too many: {word}{only}")


def refuse_pieces(
    operands: Iterable[str], words: Sequence[str], arguments: Iterable[Argument]
) -> None:
    """Raises UsageError for an operand that looks like a piece of an option's value."""
    for word in operands:
        if not _PIECE.fullmatch(word) or os.path.exists(word):
            continue
        advice = "quote the JSON"
        if _PAIR.match(word):
            pairs = [name for each in arguments if _takes_pairs(each) for name in each.names[:1]]
            before = [each for each in words[: words.index(word)] if each in pairs][-1:]
            named = [*before, *(name for name in pairs if name == "--key")]
            parts = word.split(",")
            parts = parts if all(map(_PAIR.match, parts)) else [word]
            told = " ".join(f"{name} {part}" for name in named[:1] for part in parts)
            advice = f"say {told}" if told else "it names no stream"
        raise UsageError(f"can't use {word!r}: {advice}")


def _takes_pairs(argument: Argument) -> bool:
    return argument.index is None and argument.parameter.metavar == "NAME=VALUE"


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
    names = {name.strip("-"): name for argument in arguments for name in argument.names}
    others = {name.strip("-"): ours for name, ours in synonyms.of(names.values()).items()}
    ours = names.values()
    told = {
        each: synonyms.advice(each, ours) or synonyms.of_form(each, ours)
        for each in _options(words)
    }
    told = {each: text for each, text in told.items() if text and each not in ours}
    if word in told:
        pieces = [synonyms.of_syntax(each) for each in words[1:] if each[:1] != "-"]
        advice = "; ".join(dict.fromkeys([*told.values(), *filter(None, pieces)]))
        return UsageError(f"unknown {', '.join(told)}; {advice}")
    if _AGE.fullmatch(word):
        return UsageError(f"unknown {word}; an age has no minus: {word[1:]}")
    meant = word.strip("-")
    near = nearest(meant, names) or nearest(meant, others)
    longer = None
    if near != meant:
        longer = next((each for each in (*names, *others) if _begins(each, meant)), None)
    found = [({**others, **names})[each] for each in dict.fromkeys((near, longer)) if each]
    advice = _of_parts(meant, names)
    if near is None or not _is_typo(meant, near):
        found += about(meant, _texts(arguments, others))
    found = [each for each in dict.fromkeys(found) if each][:3]
    parts = [f"did you mean {_either(found)}?"] if found else []
    parts += [advice] if advice else []
    return UsageError(f"unknown {word}; {' Or: '.join(parts) or '--help lists the options'}")


def about(phrase: str, texts: Mapping[str, str]) -> list[str]:
    """Returns the names, at most three, that share the phrase's words, or whose texts have them."""
    points: Counter[str] = Counter()
    for word in sorted({*re.findall("[a-z]{2,}", phrase.lower())} - _LITTLE):
        own, stem = word.removesuffix("s"), word[: max(4, len(word) - 3)]
        by_name = [name for name in texts if own in re.split(r"\W+", name.removesuffix("s"))]
        exact = _names_with(rf"\b{own}s?\b", texts)
        having = by_name or exact or _names_with(rf"\b{stem}\w{{0,3}}\b", texts)
        if len(having) <= _TOO_MANY:
            worth = 3 if by_name else 2 if exact else 1
            points.update({name: 60 * worth // len(having) for name in having})
    best = max(points.values(), default=0)
    return [name for name, count in points.most_common(3) if 3 * count >= best > 0]


def _names_with(pattern: str, texts: Mapping[str, str]) -> list[str]:
    return [name for name, text in texts.items() if re.search(pattern, text.lower())]


def _texts(arguments: Iterable[Argument], others: Mapping[str, str]) -> dict[str, str]:
    """Returns each option's words: its help, its value's name, other tools' names for it."""
    texts: dict[str, str] = {}
    for each in arguments:
        if each.index is None:
            on, *off = [name for name in each.names if name[:2] == "--"]
            # A switch that is on has its help for the way to turn it off.
            name = (
                off[-1] if off and off[-1] == f"--no-{on[2:]}" and each.field_info.default else on
            )
            also = [other for other, ours in others.items() if ours == name]
            texts[name] = " ".join(
                [*each.names, *also, each.parameter.help or "", str(each.parameter.metavar or "")]
            )
    return texts


def _options(words: Sequence[str]) -> list[str]:
    """Returns the options of a line, without their values."""
    before = itertools.takewhile(lambda word: word != "--", words)
    return [word.partition("=")[0] for word in before if word[:1] == "-"]


def _of_parts(word: str, names: Mapping[str, str]) -> str:
    """Returns advice on an option by its parts; or ""."""
    parts = [each for each in re.split("[-.]", word) if len(each) > 1]
    told = [each for each in parts if each not in synonyms.NOUNS] or parts
    for part in told if len(parts) > 1 else ():
        for each in (part, part.removesuffix("s")):
            if advice := synonyms.advice(f"--{each}", names.values()):
                return advice
            if synonyms.OPTIONS.get(f"--{each}") == "":
                return "the table stands alone"
    return ""


def nearest(word: str, names: Iterable[str]) -> str | None:
    """Returns the name that the user may have meant; None rather than a wrong guess."""
    names = list(names)
    if close := difflib.get_close_matches(word, names, 1, _CLOSE):
        return close[0]
    return next((each for each in names if _is_slip(word, each)), None)


def _is_typo(word: str, name: str) -> bool:
    """True for a word that can hardly mean anything but this name."""
    return difflib.SequenceMatcher(None, word, name).ratio() > _TYPO


def _begins(name: str, word: str) -> bool:
    """True for the beginning of an option's name, of three letters or more."""
    return len(word) > 2 and name.startswith(word)


def _is_slip(word: str, name: str) -> bool:
    """True for one wrong letter, or letters in another order, in words of the same length."""
    if name == word.rstrip("0123456789"):  # a switch with a value: -v5
        return True
    wrong = [pair for pair in zip(word, name, strict=False) if pair[0] != pair[1]]
    is_like = len(wrong) == 1 or sorted(word) == sorted(name)
    return 3 < len(word) == len(name) and is_like


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
