"""Converts DynamoDB's typed JSON (`{"qty": {"N": "1"}}`) to plain JSON (`{"qty": 1}`)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

import msgspec
from msgspec import Raw

_is_number: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?").fullmatch
_ABSENT: Final = Raw()  # false, and no JSON is
_ZERO: Final = ord("0")


class _Value(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """An attribute value, in one of these fields; an unchanged type keeps the wire's bytes.

    A struct takes half the time of a dict, and nested values decode in the same pass.
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


Plain: TypeAlias = Raw | str | list["Plain"] | dict[str, "Plain"] | None
"""A value that msgspec encodes as plain JSON; Raw where the wire's bytes are plain JSON."""

_item: Final = msgspec.json.Decoder(dict[str, _Value])
_value: Final = msgspec.json.Decoder(_Value)
_json: Final = msgspec.json.Encoder().encode


def plain_json(images: Iterable[bytes | Raw]) -> list[str | None]:
    """Converts images (wire bytes, empty where there is none) to plain JSON; None for an empty one.

    Numbers keep their digits, binary values stay base64, sets become arrays.
    """
    return [_json(_map(_item.decode(each))).decode() if each else None for each in images]


def wire_json(images: Sequence[bytes | Raw]) -> list[str | None]:
    """Returns each image as it came; None for an empty one."""
    lines: list[str | None] = list(b"\n".join(images).decode().split("\n"))
    if len(lines) != len(images):  # line breaks between the tokens: not DynamoDB's own JSON
        lines = [bytes(image).decode() for image in images]
    return [line or None for line in lines]


def plain(value: Raw) -> Plain:
    """Converts an attribute value to one that msgspec encodes as plain JSON."""
    return _list([_value.decode(value)])[0]


def _map(values: dict[str, _Value]) -> dict[str, Plain]:
    return {name: value.S or _other(value) for name, value in values.items()}


def _list(values: list[_Value]) -> list[Plain]:
    return [value.S or _other(value) for value in values]


def _other(value: _Value) -> Plain:
    """Converts a value that is no string; the most frequent types come first."""
    if (number := value.N) is not None:
        return _number(number)
    if (values := value.M) is not None:
        return _map(values)
    if value.L is not None:
        return _list(value.L)
    if value.NS is not None:
        return list(map(_number, value.NS))
    return value.BOOL or value.SS or value.B or value.BS or None


def _number(digits: str) -> Raw | str:
    text = digits.encode()
    # An emulator's "007" or "NaN" would break the JSON around it, and stays text.
    is_number = (text.isdigit() and text[0] != _ZERO) or _is_number(digits)
    return Raw(text) if is_number else digits
