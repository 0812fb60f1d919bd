"""Compares a copy's item with the table's: as JSON or columns have it, where they lose types."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from decimal import Decimal
from enum import Enum
from typing import Final, TypeAlias

from watcher.aws.model import WireItem, WireValue, typed
from watcher.records.diff import ABSENT, Absent, Content, number_text, same, to_number

Value: TypeAlias = WireValue | Absent

_SETS: Final = ("SS", "NS", "BS")
_AS_TEXT: Final = ("N", "BOOL", "M", "L", *_SETS)
_json: Final = json.JSONDecoder(parse_float=Decimal, parse_int=Decimal)


class Form(Enum):
    """The part of a value's type that a copy keeps."""

    WIRE = "all of it"
    JSON = "JSON's: a set is a list, a binary value is base64"
    COLUMNS = "as JSON, where all but binary values may also be its text"


def differing_names(expected: WireItem, copied: WireItem, form: Form) -> list[str]:
    """Returns the attributes in which a copy of this form differs from the wanted item."""
    return [
        name
        for name in sorted(expected.keys() | copied.keys())
        if not reads_as(expected.get(name, ABSENT), copied.get(name, ABSENT), form)
    ]


def reads_as(expected: Value, copied: Value, form: Form) -> bool:
    """Returns True where a copy of this form has this value for the wanted one."""
    if expected == copied:  # most often, and fast
        return True
    if isinstance(expected, Absent) or isinstance(copied, Absent):
        # Tools that have columns write a null for each that a row lacks.
        is_null = not isinstance(copied, Absent) and "NULL" in copied
        return expected is copied or (is_null and form is not Form.WIRE)
    return same(expected, copied) if form is Form.WIRE else _reads_as(expected, copied, form)


def _reads_as(expected: WireValue, copied: WireValue, form: Form) -> bool:
    kind, content = typed(expected)
    found_kind, found = typed(copied)
    if form is Form.COLUMNS and found_kind == "S" and kind in _AS_TEXT:
        copied = parsed_value(found)
        found_kind, found = typed(copied)
    if kind == "M":
        return found_kind == "M" and not differing_names(content, found, form)
    if kind == "L":
        return found_kind == "L" and _lists_equal(content, found, form)
    if kind in _SETS:
        return _is_set(kind, content, found_kind, found)
    if kind == "B" and found_kind in ("B", "S"):
        return bool(content == found)
    return same(expected, copied)


def _lists_equal(expected: Sequence[WireValue], copied: Sequence[WireValue], form: Form) -> bool:
    return len(expected) == len(copied) and all(
        reads_as(one, other, form) for one, other in zip(expected, copied, strict=True)
    )


def _is_set(kind: str, content: Sequence[str], found_kind: str, found: Content) -> bool:
    if found_kind == kind:
        members = list(found)
    elif found_kind == "L":
        members = [next(iter(each.values())) for each in found]
        wanted_kinds = ("N",) if kind == "NS" else ("S", "B")
        if not all(next(iter(each)) in wanted_kinds for each in found):
            return False
    else:
        return False
    return len(members) == len(content) and _members(kind, members) == _members(kind, content)


def _members(kind: str, values: Iterable[str]) -> frozenset[object]:
    return frozenset(map(to_number, values) if kind == "NS" else values)


def plain_value(value: object) -> WireValue:
    """Converts what a file gives to wire types."""
    if type(value) is str:  # most often
        return {"S": value}
    match value:
        case None:
            return {"NULL": True}
        case bool():
            return {"BOOL": value}
        case int() | float() | Decimal():
            return {"N": number_text(str(value))}
        case bytes() | bytearray() | memoryview():
            return {"B": base64.b64encode(value).decode()}
        case dict():
            return {"M": {str(name): plain_value(part) for name, part in value.items()}}
        case list() | tuple():
            return {"L": [plain_value(part) for part in value]}
        case datetime():
            return {"S": value.isoformat()}
    return {"S": str(value)}


def parsed_value(text: str) -> WireValue:
    """Converts JSON text to wire types; other text stays text."""
    try:
        return plain_value(_json.decode(text))
    except (ValueError, RecursionError):
        return {"S": text}
