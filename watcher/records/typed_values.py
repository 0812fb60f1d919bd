"""Attribute values in the type that the user wants them in."""

from __future__ import annotations

import base64
import decimal
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final, Protocol, TypeVar, overload

import msgspec
import pyarrow as pa
from boto3.dynamodb.types import Binary

from watcher.records.diff import to_number
from watcher.records.plain_json import plain

Attribute = dict[str, Any]
Converter = Callable[[Attribute], Any]

SETS: Final = {"SS": "S", "NS": "N", "BS": "B"}


def converter(kind: pa.DataType) -> Converter:
    """How an attribute value becomes a value of this type; None for one that can't."""
    if pa.types.is_string(kind):
        return _string
    if pa.types.is_boolean(kind):
        return lambda value: value.get("BOOL")
    if pa.types.is_binary(kind):
        return lambda value: base64.b64decode(value["B"]) if "B" in value else None
    if pa.types.is_decimal(kind):
        return _decimal(kind)
    if pa.types.is_integer(kind):
        return _integer(kind)
    if pa.types.is_floating(kind):
        return _float
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return _timestamp(kind)
    if pa.types.is_struct(kind):
        return to_struct(kind)
    if pa.types.is_map(kind):
        return _map(kind)
    if pa.types.is_list(kind):
        return _list(kind)
    raise AssertionError(f"{kind} is refused before")


def _string(value: Attribute) -> str | None:
    """Text as it is, a number's digits, base64; anything else as plain JSON."""
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

    def convert(value: Attribute) -> Decimal | None:
        number = to_number(value["N"]) if "N" in value else ""
        if isinstance(number, str):
            return None
        try:
            return number.quantize(step, context=context)
        except (decimal.InvalidOperation, decimal.Inexact):  # more digits than the type has
            return None

    return convert


def _float(value: Attribute) -> float | None:
    try:
        return float(value["N"]) if "N" in value else None
    except ValueError:  # an emulator's
        return None


def _integer(kind: pa.DataType) -> Converter:
    largest = 2 ** (kind.bit_width - 1)

    def convert(value: Attribute) -> int | None:
        if "N" not in value:
            return None
        number = to_number(value["N"])
        if isinstance(number, str) or not -largest <= number < largest:
            return None
        return int(number) if number == number.to_integral_value() else None

    return convert


def _timestamp(kind: pa.DataType) -> Converter:
    """Text in ISO 8601, or epoch seconds."""

    def convert(value: Attribute) -> datetime | None:
        try:
            if "N" in value:
                moment = datetime.fromtimestamp(float(value["N"]), UTC)
            elif "S" in value:
                moment = datetime.fromisoformat(value["S"])
            else:
                return None
        except (ValueError, OverflowError, OSError):
            return None
        # A local time without a zone is taken for UTC: executors may be anywhere.
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        naive = pa.types.is_timestamp(kind) and kind.tz is None
        return moment.astimezone(UTC).replace(tzinfo=None) if naive else moment

    return convert


def to_struct(kind: pa.StructType) -> Converter:
    """How a map becomes a struct; an attribute that is absent, or not of its type, is null."""
    fields = [(field.name, converter(field.type)) for field in kind]

    def convert(value: Attribute) -> dict[str, Any] | None:
        item = value.get("M")
        if item is None:
            return None
        return {name: field(item[name]) for name, field in fields if name in item}

    return convert


def _map(kind: pa.MapType) -> Converter:
    convert = converter(kind.item_type)

    def convert_all(value: Attribute) -> list[tuple[str, Any]] | None:
        item = value.get("M")
        return None if item is None else [(name, convert(part)) for name, part in item.items()]

    return convert_all


def _list(kind: pa.ListType) -> Converter:
    convert = converter(kind.value_type)

    def convert_all(value: Attribute) -> list[Any] | None:
        for name, content in value.items():
            if name == "L":
                return [convert(part) for part in content]
            if name in SETS:
                return [convert({SETS[name]: part}) for part in content]
        return None

    return convert_all


class _HasModelValidate(Protocol):
    @classmethod
    def model_validate(cls, obj: Any) -> Any:
        """Make one of plain values."""


_Model = TypeVar("_Model", bound=_HasModelValidate)


@overload
def as_model(item: None, model: type[_Model]) -> None: ...


@overload
def as_model(item: Mapping[str, Any], model: type[_Model]) -> _Model: ...


def as_model(item: Mapping[str, Any] | None, model: type[_Model]) -> _Model | None:
    """An item (`record.new`, `record.old`, `record.key`) as a model; None for None.

    Numbers are given to it as Decimal, binary values as bytes. Raises what the model does where
    the item is none of its kind.
    """
    made: _Model | None = None if item is None else model.model_validate(_plain(item))
    return made


def _plain(value: Any) -> Any:
    match value:
        case Mapping():
            return {name: _plain(part) for name, part in value.items()}
        case list():
            return [_plain(part) for part in value]
        case set():
            return {_plain(part) for part in value}
        case Binary():
            return bytes(value)  # type: ignore[call-overload] # the stubs do not know its __bytes__
        case _:
            return value
