"""Options of kubectl, stern, kcat, jq, gh and the aws CLI that mean exactly one of ours."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence

_SYNONYMS = {
    **dict.fromkeys(("--since", "--since-time", "--start-time", "--starting-position"), "--from"),
    **dict.fromkeys(("-f", "-w", "--watch"), "--follow"),
    **dict.fromkeys(("--exit", "--once", "--exit-eof"), "--no-follow"),
    **dict.fromkeys(("-n", "--limit", "--max-items", "--max-messages"), "--max-records"),
    **dict.fromkeys(("--query", "--jq"), "--jmespath"),
    **dict.fromkeys(("--event-name", "--event-names"), "--only"),
    **dict.fromkeys(("--no-color", "--no-colors"), "--color never"),
    "--debug": "--verbose",
    "--endpoint": "--endpoint-url",
    "--poll": "--poll-max",
    "--json": "--print-json",
    "--summary": "--print-summary",
    "--diff": "--print-diff",
}

OTHER_NAMES = {"ls": "streams"}
"""Commands by the names that hands type; `tail` is below."""
_COUNT = re.compile(r"-n=?(\d+)")
_STARTS = ("--tail", "--from", "--since", "--since-time", "--checkpoint")


def tailed(words: Sequence[str]) -> list[str]:
    """What the words behind `tail` are to a watch: it begins with the last changes, `-n` many."""
    words = [_COUNT.sub(r"--tail=\1", "--tail" if word == "-n" else word) for word in words]
    begins = any(word.partition("=")[0] in _STARTS for word in words)
    return words if begins else ["--tail=10", *words]


def translated(arguments: Sequence[str], known: Container[str]) -> list[str]:
    """The arguments in the words of a parser that knows these options; its own stay."""
    words: list[str] = []
    left = list(arguments)
    while left and left[0] != "--":
        name, equals, value = left.pop(0).partition("=")
        ours, *more = _SYNONYMS[name].split() if name in _SYNONYMS else [name]
        if name in known or ours not in known:
            ours, more = name, []
        words += [ours + equals + value, *more]
    return words + left
