"""Converts attribute values to columns' types: a column takes only what it gives back exactly.

Any other value stays out of the column, in `_rescued_data`.
"""

from __future__ import annotations

import base64
import decimal
import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

import msgspec
import pyarrow as pa

from watcher.aws.model import WireValue, typed
from watcher.records.diff import to_number
from watcher.records.plain_json import plain

Converter = Callable[[WireValue], Any]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_SECOND: Final = 10**12
_MICROSECOND: Final = timedelta(microseconds=1)
# `fromisoformat` drops them.
_FINER_DIGITS: Final = re.compile(r"[.,]\d{6}\d*[1-9]")


def converter(kind: pa.DataType) -> Converter:
    """Returns the conversion of an attribute value to a type; a value that doesn't fit is None."""
    for is_kind, make in _CONVERTERS.items():
        if is_kind(kind):
            return make(kind)
    raise AssertionError(f"no column has the type {kind}")


def _string(value: WireValue) -> str | None:
    """Converts to text: a string as it is, a number's digits, base64, or plain JSON."""
    kind, content = typed(value)
    if kind in ("S", "N", "B"):
        return str(content)
    raw = msgspec.Raw(msgspec.json.encode(value))
    return msgspec.json.encode(plain(raw)).decode()


def _number(value: WireValue) -> Decimal | None:
    number = to_number(value["N"]) if "N" in value else None
    return number if isinstance(number, Decimal) else None  # text is an emulator's


def _decimal(kind: pa.Decimal128Type) -> Converter:
    step = Decimal(1).scaleb(-kind.scale)
    context = decimal.Context(
        prec=kind.precision, traps=[decimal.InvalidOperation, decimal.Inexact]
    )

    def convert(value: WireValue) -> Decimal | None:
        if (number := _number(value)) is None:
            return None
        try:
            return number.quantize(step, context=context)
        except (decimal.InvalidOperation, decimal.Inexact):  # more digits than the type has
            return None

    return convert


def _float(kind: pa.DataType) -> Converter:
    def convert(value: WireValue) -> float | None:
        if (number := _number(value)) is None:
            return None
        found = pa.scalar(float(number), kind)
        # The shortest text of the float is the number's, or it is another number.
        return found.as_py() if Decimal(found.cast(pa.string()).as_py()) == number else None

    return convert


def _integer(kind: pa.DataType) -> Converter:
    largest = 2 ** (kind.bit_width - 1)

    def convert(value: WireValue) -> int | None:
        number = _number(value)
        if number is None or not -largest <= number < largest:
            return None
        return int(number) if number == number.to_integral_value() else None

    return convert


def _time(value: WireValue) -> datetime | None:
    """Returns the time of text in ISO 8601, or of epoch seconds, to the microsecond.

    A time without a zone counts as UTC.
    """
    try:
        if (number := _number(value)) is not None:
            if abs(number) > _LAST_SECOND:
                return None
            microseconds = Fraction(number) * 1_000_000  # exact, however many digits it has
            if microseconds.denominator > 1:
                return None
            return _EPOCH + int(microseconds) * _MICROSECOND
        if "S" not in value or _FINER_DIGITS.search(value["S"]):
            return None
        time = datetime.fromisoformat(value["S"])
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _date(value: WireValue) -> date | None:
    time = _time(value)
    is_whole = time is not None and (time - _EPOCH) % timedelta(days=1) == timedelta(0)
    return time.date() if time is not None and is_whole else None


def _binary(value: WireValue) -> bytes | None:
    return base64.b64decode(value["B"]) if "B" in value else None


_CONVERTERS: Final[Mapping[Callable[[pa.DataType], bool], Callable[[pa.DataType], Converter]]] = {
    pa.types.is_string: lambda _: _string,
    pa.types.is_boolean: lambda _: lambda value: value.get("BOOL"),
    pa.types.is_binary: lambda _: _binary,
    pa.types.is_decimal: _decimal,
    pa.types.is_integer: _integer,
    pa.types.is_floating: _float,
    pa.types.is_timestamp: lambda _: _time,
    pa.types.is_date: lambda _: _date,
    pa.types.is_list: lambda _: lambda value: value.get("SS"),
}
