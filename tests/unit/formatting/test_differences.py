"""Values on a terminal: long ones cut, of two strings what differs."""

from collections.abc import Iterator
from decimal import Decimal

import pytest
from boto3.dynamodb.types import Binary

from watcher.formatting import style
from watcher.formatting.differences import shown_item, shown_pair, shown_value
from watcher.formatting.values import printable_value


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    style.set_up(color="never")
    monkeypatch.undo()
    yield
    style.set_up(color="never")


def test_a_long_text_is_cut_and_its_length_said(terminal: None) -> None:
    shown = shown_value({"a": "x" * 5000, "b": ["y" * 10]})
    assert shown == "{a: '" + "x" * 160 + "'… (5,000 characters), b: ['yyyyyyyyyy']}"
    assert shown_value(Binary(b"z" * 500)) == "b'" + "z" * 40 + "'… (500 bytes)"


def test_files_and_pipes_have_whole_values(terminal: None) -> None:
    style.set_up(color="never")  # standard output of a test is no terminal
    assert shown_value("x" * 5000) == repr("x" * 5000)
    old, new = "x" * 999 + "a", "x" * 999 + "b"
    assert shown_pair(old, new) == (repr(old), repr(new))


def test_of_two_long_strings_the_span_that_differs_is_shown(terminal: None) -> None:
    old = "once upon a time " * 10 + "a red fox" + " and so on" * 10
    new = old.replace("red", "very brown")
    before, after = shown_pair(old, new)
    assert before == f"…'e upon a time a red fox and so on a'… ({len(old):,} characters)"
    assert after == f"…'e upon a time a very brown fox and so on a'… ({len(new):,} characters)"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("a" * 300, "a" * 301),
        ("b" + "a" * 300, "a" * 300),
        ("a" * 300, ""),
        ("a" * 300, "b" * 300),
        ("x" * 100 + "1" * 900 + "y" * 100, "x" * 100 + "2" * 900 + "y" * 100),
    ],
)
def test_any_two_strings_are_told_apart(old: str, new: str, terminal: None) -> None:
    before, after = shown_pair(old, new)
    assert before != after
    assert len(before) < 300 > len(after)


def test_short_values_are_as_they_are(terminal: None) -> None:
    assert shown_pair("new", "step 4") == ("'new'", "'step 4'")
    assert shown_pair(Decimal(1), "1") == ("1", "'1'")


def test_an_item_begins_with_its_key_and_has_its_attributes_by_name() -> None:
    item = {"z": Decimal(1), "SK": "b", "a": True, "PK": "a"}
    assert shown_item(item, {"PK", "SK"}) == "{PK: 'a', SK: 'b', a: True, z: 1}"


def test_a_set_of_numbers_is_in_their_order() -> None:
    assert printable_value({Decimal(10), Decimal(9), Decimal("-1.5")}) == "{-1.5, 9, 10}"
    assert printable_value({"b", "a"}) == "{'a', 'b'}"
