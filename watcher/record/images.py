"""Items from DynamoDB's typed JSON (`{"qty": {"N": "1"}}`) to plain JSON (`{"qty": 1}`)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec import Raw

_is_number: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?").fullmatch
_ABSENT: Final = Raw()


class _Value(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """An attribute value: one of these; what needs no change stays the wire's bytes.

    A struct takes half the time of a dict for each value, and nested ones come in the same pass.
    """

    S: Raw = _ABSENT
    N: str | None = None
    M: dict[str, _Value] | None = None
    BOOL: Raw = _ABSENT
    L: list[_Value] | None = None
    NULL: bool = False
    SS: Raw = _ABSENT
    NS: list[str] | None = None
    B: Raw = _ABSENT
    BS: Raw = _ABSENT


_item: Final = msgspec.json.Decoder(dict[str, _Value])
_value: Final = msgspec.json.Decoder(_Value)
_json: Final = msgspec.json.Encoder().encode


def plain_json(images: Sequence[bytes | Raw]) -> list[str | None]:
    """Each image (wire bytes, empty where there is none) as plain JSON; None where there is none.

    Numbers keep their digits, binary values stay base64, sets become arrays.
    """
    return [_json(_map(_item.decode(image))).decode() if bytes(image) else None for image in images]


def wire_json(images: Sequence[bytes | Raw]) -> list[str | None]:
    """Each image as it came; None where there is none."""
    lines: list[str | None] = list(b"\n".join(images).decode().split("\n"))
    if len(lines) != len(images):  # line breaks between the tokens: not DynamoDB's own JSON
        lines = [bytes(image).decode() for image in images]
    return [line or None for line in lines]


def plain(value: Raw) -> Any:
    """An attribute value as what msgspec encodes to plain JSON."""
    return _list([_value.decode(value)])[0]


def _map(values: dict[str, _Value]) -> dict[str, Any]:
    return {
        name: _other(value) if value.S is _ABSENT else value.S for name, value in values.items()
    }


def _list(values: list[_Value]) -> list[Any]:
    return [_other(value) if value.S is _ABSENT else value.S for value in values]


def _other(value: _Value) -> Any:
    """What is no string, the most frequent first."""
    if value.N is not None:
        return _number(value.N)
    if value.M is not None:
        return _map(value.M)
    if value.BOOL is not _ABSENT:
        return value.BOOL
    if value.L is not None:
        return _list(value.L)
    if value.NS is not None:
        return [_number(digits) for digits in value.NS]
    for raw in (value.SS, value.B, value.BS):
        if raw is not _ABSENT:
            return raw
    return None


def _number(digits: str) -> Raw | str:
    is_plain = digits.isdecimal() and digits.isascii() and digits[0] != "0"
    # An emulator's "007" or "NaN" would break the JSON around it: it stays text.
    return Raw(digits.encode()) if is_plain or _is_number(digits) else digits
