"""Converts attribute values to the types of a user's schema."""

from __future__ import annotations

import base64
import decimal
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

import msgspec
import pyarrow as pa

from watcher.aws.model import WireValue
from watcher.records.diff import to_number
from watcher.records.plain_json import plain
from watcher.records.record import NativeItem, NativeValue

Converter = Callable[[WireValue], Any]

SETS: Final = {"SS": "S", "NS": "N", "BS": "B"}
RESCUED: Final = "_rescued_data"
"""The column of attributes that no other one holds, in DynamoDB's JSON."""


def converter(kind: pa.DataType) -> Converter:
    """Returns the conversion of an attribute value to a type; a value that can't be is None."""
    if pa.types.is_struct(kind):
        return _struct(kind)
    if pa.types.is_map(kind):
        return _map(converter(kind.item_type))
    if pa.types.is_list(kind):
        return _list(converter(kind.value_type))
    for is_kind, make in _CONVERTERS.items():
        if is_kind(kind):
            return make(kind)
    raise AssertionError(f"{kind} is refused before")


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


def _struct(kind: pa.StructType) -> Converter:
    """Returns the conversion of a map to a struct; an absent attribute is null."""
    fields = [(field.name, converter(field.type)) for field in kind]

    def convert(value: WireValue) -> NativeItem | None:
        item = value.get("M")
        if item is None:
            return None
        return {name: field(item[name]) for name, field in fields if name in item}

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
