"""Options of kubectl, stern, kcat, jq, gh and the aws CLI that mean exactly one of ours."""

from __future__ import annotations

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
}


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
