"""Items from DynamoDB's typed JSON (`{"qty": {"N": "1"}}`) to plain JSON (`{"qty": 1}`)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
from msgspec import Raw

_is_number: Final = re.compile(rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?").fullmatch

# Values stay the wire's bytes, which go out as they came in: nothing is parsed but structure.
_map: Final = msgspec.json.Decoder(dict[str, dict[str, Raw]])
_list: Final = msgspec.json.Decoder(list[dict[str, Raw]])
_texts: Final = msgspec.json.Decoder(list[str])
_json: Final = msgspec.json.Encoder().encode

_AS_IT_IS: Final = frozenset({"S", "B", "BOOL", "SS", "BS"})


def plain_json(images: Sequence[bytes | Raw]) -> list[str | None]:
    """Each image (wire bytes, empty where there is none) as plain JSON; None where there is none.

    Numbers keep their digits, binary values stay base64, sets become arrays.
    """
    return [_json(_plain_map(image)).decode() if bytes(image) else None for image in images]


def wire_json(images: Sequence[bytes | Raw]) -> list[str | None]:
    """Each image as it came; None where there is none."""
    lines: list[str | None] = list(b"\n".join(images).decode().split("\n"))
    if len(lines) != len(images):  # line breaks between the tokens: not DynamoDB's own JSON
        lines = [bytes(image).decode() for image in images]
    return [line or None for line in lines]


def plain(value: Raw) -> Any:
    """An attribute value as what msgspec encodes to plain JSON."""
    return _plain_list(b"[%b]" % value)[0]


def _plain_map(raw: bytes | Raw) -> dict[str, Any]:
    return {
        name: content if kind in _AS_IT_IS else _OTHERS[kind](content)
        for name, value in _map.decode(raw).items()
        for kind, content in value.items()
    }


def _plain_list(raw: bytes | Raw) -> list[Any]:
    return [
        content if kind in _AS_IT_IS else _OTHERS[kind](content)
        for value in _list.decode(raw)
        for kind, content in value.items()
    ]


def _number(raw: Raw) -> Raw:
    digits = bytes(raw)[1:-1]
    # An emulator's "007" or "NaN" would break the JSON around it: it stays text.
    return Raw(digits) if _is_number(digits) else raw


def _numbers(raw: Raw) -> list[Raw]:
    return [_number(Raw(b'"%b"' % text.encode())) for text in _texts.decode(raw)]


_OTHERS: Final[dict[str, Callable[[Raw], Any]]] = {
    "N": _number,
    "NULL": lambda _: None,
    "M": _plain_map,
    "L": _plain_list,
    "NS": _numbers,
}
