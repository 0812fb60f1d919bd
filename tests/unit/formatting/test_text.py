from decimal import Decimal

import msgspec
import pytest
from boto3.dynamodb.types import Binary

from watcher.formatting.text import cell_width, counted, grouped, padded, printable, printable_json
from watcher.formatting.values import key_text, printable_key, printable_value


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain Grüße 🎈 日本", "plain Grüße 🎈 日本"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\nb\tc\r", "a\\nb\\tc\\r"),
        ("\x9b2J", "\\x9b2J"),
        ("\x7f", "\\x7f"),
        ("\u202eevil", "\\u202eevil"),
    ],
)
def test_control_characters_are_shown_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_in_json_they_become_json_escapes() -> None:
    assert printable_json('{"a":"\x7f\x9b"}') == '{"a":"\\u007f\\u009b"}'


def test_a_key_without_its_type_ends_nothing() -> None:
    assert printable_key({"PK": {}}) == key_text(msgspec.Raw(b'{"PK": {}}')) == "PK=None"


def test_values_stand_on_one_line() -> None:
    value = {
        "a": [Decimal("1.50"), None, True],
        "b": {"y", "x"},
        "c": Binary(b"\x00"),
        "\n": "\x1b",
    }
    assert printable_value(value) == (
        "{a: [1.50, None, True], b: {'x', 'y'}, c: b'\\x00', \\n: '\\x1b'}"
    )


@pytest.mark.parametrize(("text", "width"), [("abc", 3), ("東京", 4), ("é", 1), ("", 0)])
def test_a_text_is_padded_by_the_columns_that_it_takes(text: str, width: int) -> None:
    assert cell_width(text) == width
    assert padded(text, 6) == text + " " * (6 - width)


def test_a_number_of_things_has_its_plural() -> None:
    texts = [counted(number, "change") for number in (0, 1, 1000)]
    assert texts == ["0 changes", "1 change", "1000 changes"]
    assert [counted(2, noun) for noun in ("DATA LOSS", "batch")] == ["2 DATA LOSSES", "2 batches"]
    assert grouped(1000, "shard") == "1,000 shards"
