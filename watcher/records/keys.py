"""An item's key in one form: DynamoDB Local's records have a number's text as a request had it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, TypeAlias

import msgspec

from watcher.records.diff import to_number

WireKey: TypeAlias = dict[str, dict[str, str]]
"""`{"PK": {"S": "user-1"}}`, binary values in base64."""

_decode: Final = msgspec.json.Decoder(WireKey).decode
_encode: Final = msgspec.json.Encoder().encode
# A number as the service itself writes it.
_is_normal: Final = re.compile(r"0|-?(?:[1-9][0-9]*+|0(?=\.))(?:\.[0-9]*[1-9])?").fullmatch
_NUMBER: Final = b'"N"'
# Of an emulator: written out, it would be as long.
_LARGEST_EXPONENT: Final = 400


def number_text(text: str) -> str:
    """Returns the one text of a number: `1.0`, `+1` and `10E-1` are `1`. Other text stays."""
    if _is_normal(text):
        return text
    number = to_number(text)
    if isinstance(number, str) or abs(number.adjusted()) > _LARGEST_EXPONENT:
        return text
    written = f"{number:f}"
    if "." in written:
        written = written.rstrip("0").rstrip(".")
    return "0" if written in ("-0", "") else written


def normal_key(key: WireKey) -> WireKey:
    """Returns a key whose numbers have their one text."""
    return {
        name: {kind: number_text(text) if kind == "N" else text for kind, text in value.items()}
        for name, value in key.items()
    }


def key_of(keys: bytes | msgspec.Raw) -> WireKey:
    """Returns a record's `Keys` with one text for each number."""
    return normal_key(_decode(keys))


def normal_keys(keys: Sequence[bytes | msgspec.Raw]) -> Sequence[bytes | msgspec.Raw]:
    """Returns the wire's JSON of keys with one text for each number; most stay as they are."""
    if not any(_NUMBER in bytes(each) for each in keys):
        return keys
    return [_normal(each) for each in keys]


def _normal(raw: bytes | msgspec.Raw) -> bytes | msgspec.Raw:
    if not raw:
        return raw
    key = _decode(raw)
    normal = normal_key(key)
    return raw if normal == key else _encode(normal)
