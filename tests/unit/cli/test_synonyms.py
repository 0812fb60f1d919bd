"""Options of other tools that mean exactly one of ours."""

import pytest

from watcher.cli.synonyms import translated

KNOWN = {"--from", "--follow", "--max-records", "--print-json", "--color", "--verbose", "-v"}


@pytest.mark.parametrize(
    ("typed", "ours"),
    [
        ("orders --since 2h -f", "orders --from 2h --follow"),
        ("orders --since=2h", "orders --from=2h"),
        ("orders -n 3 --no-color --debug", "orders --max-records 3 --color never --verbose"),
        ("orders --json", "orders --print-json"),
        ("orders -n 1", "orders --max-records 1"),
        ("orders -o yaml", "orders -o yaml"),
        ("orders --query x", "orders --query x"),
        ("orders -- --since", "orders -- --since"),
    ],
)
def test_they_are_taken_as_ours(typed: str, ours: str) -> None:
    assert translated(typed.split(), KNOWN) == ours.split()


def test_a_parsers_own_options_and_all_other_words_stay() -> None:
    words = ["-o", "json", "", "select a = 1", "--once", "-o"]
    assert translated(words, {*KNOWN, "-o", "--once", "--no-follow"}) == words
