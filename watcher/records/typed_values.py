"""Converts attribute values to the types of a user's schema."""

from __future__ import annotations

import base64
import decimal
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import Any, Final

import msgspec
import pyarrow as pa

from watcher.aws.model import WireValue
from watcher.records.diff import to_number
from watcher.records.plain_json import plain
from watcher.records.record import NativeItem, NativeValue

Converter = Callable[[WireValue], Any]
_MakeConverter = Callable[[pa.DataType], Converter]

SETS: Final = {"SS": "S", "NS": "N", "BS": "B"}
RESCUED: Final = "_rescued_data"
"""The column of attributes that no other one holds, in DynamoDB's JSON."""


class DoesNotFitError(Exception):
    """A value that a type can't hold, or not all of it."""


def converter(kind: pa.DataType) -> Converter:
    """Returns the conversion of an attribute value to a type; a value that can't be is None."""
    return _conversion(kind, converter)


def strict_converter(kind: pa.DataType, *, whole: bool) -> Converter:
    """Returns the same conversion; it raises DoesNotFitError for a value that it would lose.

    That is one that becomes None and is not NULL, or has a part that does; with `whole` also one
    that has a part for which a struct has no field.
    """
    convert = _conversion(kind, partial(strict_converter, whole=whole), whole=whole)

    def converted(value: WireValue) -> object:
        found = convert(value)
        if found is None and value and "NULL" not in value:
            raise DoesNotFitError
        return found

    return converted


def _conversion(kind: pa.DataType, of_part: _MakeConverter, *, whole: bool = False) -> Converter:
    if pa.types.is_struct(kind):
        return _struct(kind, of_part, whole=whole)
    if pa.types.is_map(kind):
        return _map(of_part(kind.item_type))
    if pa.types.is_list(kind):
        return _list(of_part(kind.value_type))
    for is_kind, make in _CONVERTERS.items():
        if is_kind(kind):
            return make(kind)
    raise AssertionError(f"{kind} is refused before")


_KEY_TYPES: Final[Mapping[str, Sequence[Callable[[pa.DataType], bool]]]] = {
    "S": (pa.types.is_string, pa.types.is_timestamp, pa.types.is_date),
    "B": (pa.types.is_string, pa.types.is_binary),
    "N": (
        *(pa.types.is_string, pa.types.is_timestamp, pa.types.is_date),
        *(pa.types.is_integer, pa.types.is_decimal, pa.types.is_floating),
    ),
}


def may_hold_key(kind: pa.DataType, key_type: str) -> bool:
    """True where a column's type may hold a table's key attribute, S, N or B."""
    return any(is_kind(kind) for is_kind in _KEY_TYPES[key_type])


def _string(value: WireValue) -> str | None:
    """Converts to text: a string as it is, a number's digits, base64, or plain JSON."""
    for kind, content in value.items():
        if kind in ("S", "N", "B"):
            return str(content)
        if kind != "NULL":
            raw = msgspec.Raw(msgspec.json.encode(value))
            return msgspec.json.encode(plain(raw)).decode()
    return None


def _decimal(kind: pa.Decimal128Type) -> Converter:
    step = Decimal(1).scaleb(-kind.scale)
    context = decimal.Context(
        prec=kind.precision, traps=[decimal.InvalidOperation, decimal.Inexact]
    )

    def convert(value: WireValue) -> Decimal | None:
        number = to_number(value["N"]) if "N" in value else ""
        if isinstance(number, str):
            return None
        try:
            return number.quantize(step, context=context)
        except (decimal.InvalidOperation, decimal.Inexact):  # more digits than the type has
            return None

    return convert


def _float(value: WireValue) -> float | None:
    try:
        return float(value["N"]) if "N" in value else None
    except ValueError:  # an emulator's
        return None


def _integer(kind: pa.DataType) -> Converter:
    largest = 2 ** (kind.bit_width - 1)

    def convert(value: WireValue) -> int | None:
        if "N" not in value:
            return None
        number = to_number(value["N"])
        if isinstance(number, str) or not -largest <= number < largest:
            return None
        return int(number) if number == number.to_integral_value() else None

    return convert


def _timestamp(kind: pa.DataType) -> Converter:
    """Returns the conversion of text in ISO 8601, or of epoch seconds."""

    def convert(value: WireValue) -> datetime | None:
        try:
            if "N" in value:
                time = datetime.fromtimestamp(float(value["N"]), UTC)
            elif "S" in value:
                time = datetime.fromisoformat(value["S"])
            else:
                return None
        except (ValueError, OverflowError, OSError):
            return None
        # A time without a zone counts as UTC: executors may run anywhere.
        time = time if time.tzinfo else time.replace(tzinfo=UTC)
        naive = pa.types.is_timestamp(kind) and kind.tz is None
        return time.astimezone(UTC).replace(tzinfo=None) if naive else time

    return convert


def _struct(kind: pa.StructType, of_part: _MakeConverter, *, whole: bool) -> Converter:
    """Returns the conversion of a map to a struct; an absent attribute is null."""
    fields = [(field.name, of_part(field.type)) for field in kind]

    def convert(value: WireValue) -> NativeItem | None:
        item = value.get("M")
        if item is None:
            return None
        made = {name: field(item[name]) for name, field in fields if name in item}
        if whole and len(made) < len(item):
            raise DoesNotFitError
        return made

    return convert


def _map(convert: Converter) -> Converter:
    def convert_all(value: WireValue) -> list[tuple[str, NativeValue]] | None:
        item = value.get("M")
        return None if item is None else [(name, convert(part)) for name, part in item.items()]

    return convert_all


def _list(convert: Converter) -> Converter:
    def convert_all(value: WireValue) -> list[NativeValue] | None:
        for name, content in value.items():
            if name == "L":
                return [convert(part) for part in content]
            if name in SETS:
                return [convert({SETS[name]: part}) for part in content]
        return None

    return convert_all


_CONVERTERS: Final[Mapping[Callable[[pa.DataType], bool], Callable[[pa.DataType], Converter]]] = {
    pa.types.is_string: lambda _: _string,
    pa.types.is_boolean: lambda _: lambda value: value.get("BOOL"),
    pa.types.is_binary: lambda _: (
        lambda value: base64.b64decode(value["B"]) if "B" in value else None
    ),
    pa.types.is_decimal: _decimal,
    pa.types.is_integer: _integer,
    pa.types.is_floating: lambda _: _float,
    pa.types.is_timestamp: _timestamp,
    pa.types.is_date: _timestamp,
}
