"""A number in a key has one text, however a request has written it."""

import msgspec
import pytest

from watcher.records.diff import key_of, normal_keys, number_text


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        *((text, "1") for text in ("1", "1.0", "+1", "001", "10E-1")),
        *((".5", "0.5"), ("-2.10", "-2.1"), ("1e-3", "0.001")),
        *(("-0", "0"), ("0.000", "0"), ("100", "100"), ("1E2", "100")),
        ("12345678901234567890123456789012345678", "12345678901234567890123456789012345678"),
        ("1E+125", "1" + 125 * "0"),
        ("NaN", "NaN"),
        ("1E999999999", "1E999999999"),
    ],
)
def test_equal_numbers_have_one_text(text: str, normal: str) -> None:
    assert number_text(text) == normal
    assert number_text(normal) == normal


def test_only_numbers_are_changed() -> None:
    raw = b'{"a":{"S":"1.0"},"b":{"N":"1.0"}}'
    assert key_of(raw) == {"a": {"S": "1.0"}, "b": {"N": "1"}}
    assert normal_keys([raw]) == [b'{"a":{"S":"1.0"},"b":{"N":"1"}}']


def test_keys_that_are_in_form_keep_their_bytes() -> None:
    keys = [msgspec.Raw(b'{"a": {"N": "1"}}'), msgspec.Raw(b""), msgspec.Raw(b'{"a":{"S":"1.0"}}')]
    assert [bytes(each) for each in normal_keys(keys)] == [bytes(each) for each in keys]
