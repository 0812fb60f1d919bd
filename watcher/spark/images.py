"""Items from DynamoDB's typed JSON (`{"qty": {"N": "1"}}`) to plain JSON (`{"qty": 1}`)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

_STRING: Final = rb'"[^"\\]*(?:\\.[^"\\]*)*"'
_NUMBER: Final = rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_IS_NUMBER: Final = re.compile(_NUMBER.decode())
# A quote inside a JSON string is escaped, and an attribute's value is always an object: so these
# bytes are a value with its type, wherever they stand. Maps, lists and sets of numbers nest.
_FLAT_VALUE: Final = re.compile(
    rb'\{"(?:[SB]":(%s)|N":"(%s)"|BOOL":(true|false)|[SB]S":(\[%s(?:,%s)*\]))\}'
    % (_STRING, _NUMBER, _STRING, _STRING)
)
# What is left of a value after the flat ones are replaced; at times it is only text in a string.
_VALUE_LEFT: Final = re.compile(rb":\s*\{")

_item: Final = msgspec.json.Decoder(dict[str, dict[str, Any]])


def plain_json(images: Sequence[bytes | msgspec.Raw]) -> list[str | None]:
    """Each image (wire bytes, empty where there is none) as plain JSON; None where there is none.

    Numbers keep their digits, binary values stay base64, sets become arrays. All images go
    through one pass of a regular expression, some 2 microseconds each; only those with maps,
    lists or sets of numbers in them are decoded.
    """
    parts = _FLAT_VALUE.split(b"\n".join(images).replace(b'{"NULL":true}', b"null"))
    text = b"".join(filter(None, parts))
    lines: list[str | None] = list(text.decode().split("\n"))
    if len(lines) != len(images):  # blanks between the tokens: not DynamoDB's own JSON
        return [_decoded(image) for image in images]
    if _VALUE_LEFT.search(text):
        for index, line in enumerate(text.split(b"\n")):
            if _VALUE_LEFT.search(line):
                lines[index] = _decoded(images[index])
    return [line or None for line in lines]


def wire_json(images: Sequence[bytes | msgspec.Raw]) -> list[str | None]:
    """Each image as it came; None where there is none."""
    lines: list[str | None] = list(b"\n".join(images).decode().split("\n"))
    if len(lines) != len(images):
        lines = [bytes(image).decode() for image in images]
    return [line or None for line in lines]


def plain(value: dict[str, Any]) -> Any:
    """An attribute value as what msgspec encodes to plain JSON."""
    for kind, content in value.items():
        match kind:
            case "N":
                return _number(content)
            case "NS":
                return [_number(text) for text in content]
            case "M":
                return {name: plain(part) for name, part in content.items()}
            case "L":
                return [plain(part) for part in content]
            case "NULL":
                return None
            case _:
                return content
    return None


def _decoded(image: bytes | msgspec.Raw) -> str | None:
    if not bytes(image):
        return None
    item = {name: plain(value) for name, value in _item.decode(image).items()}
    return msgspec.json.encode(item).decode()


def _number(text: str) -> msgspec.Raw | str:
    # An emulator's "007" or "NaN" would break the JSON around it.
    return msgspec.Raw(text.encode()) if _IS_NUMBER.fullmatch(text) else text
