"""Images as typed columns: what an attribute's value is in the type that the user wants it in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Final

import msgspec
import pyarrow as pa
from msgspec import Raw
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    CharType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    VarcharType,
)

from watcher.errors import UsageError
from watcher.record.typed import SETS, Attribute, converter, to_struct

_item: Final = msgspec.json.Decoder(dict[str, Attribute])
_ABSENT: Final = Raw()


_POSSIBLE: Final = (
    "string, boolean, binary, decimal, tinyint to bigint, float, double, timestamp, date, "
    "array, struct, map<string, …>"
)
_FILLED: Final = (
    *(StringType, BooleanType, BinaryType, DecimalType, IntegralType),
    *(FloatType, DoubleType, TimestampType, TimestampNTZType, DateType),
)


def refuse_unfit(schema: StructType) -> None:
    """Raises UsageError for a column that has a type in it that no attribute can become."""
    for field in schema:
        if field.name in ("new_image", "old_image"):
            _refuse_unfit(field.dataType, field.name)


def _refuse_unfit(kind: DataType, name: str) -> None:
    match kind:
        case StructType():
            for field in kind:
                _refuse_unfit(field.dataType, field.name)
        case ArrayType():
            _refuse_unfit(kind.elementType, name)
        case MapType() if type(kind.keyType) is StringType:
            _refuse_unfit(kind.valueType, name)
        # Its subclasses (varchar) are no strings for Arrow.
        case _ if isinstance(kind, CharType | VarcharType) or not isinstance(kind, _FILLED):
            raise UsageError(
                f"imageSchema: {name} can't be {kind.simpleString()}; possible are {_POSSIBLE}"
            )


class _Attribute(msgspec.Struct, gc=False):
    """An attribute's value: one of these."""

    S: str | None = None
    N: str | None = None
    BOOL: bool | None = None
    B: str | None = None
    M: Raw = _ABSENT
    L: Raw = _ABSENT
    SS: Raw = _ABSENT
    NS: Raw = _ABSENT
    BS: Raw = _ABSENT

    def wire(self) -> Attribute:
        """As it came; nothing for NULL."""
        for name in ("S", "N", "BOOL", "B"):
            if (content := getattr(self, name)) is not None:
                return {name: content}
        for name in ("M", "L", *SETS):
            if (raw := getattr(self, name)) is not _ABSENT:
                return {name: msgspec.json.decode(raw)}
        return {}


class TypedImages:
    """Images as structs of some attributes; one that is absent, or not of its type, is null.

    Only these are decoded, and made column by column: half the time of whole items.
    """

    def __init__(self, kind: pa.StructType) -> None:
        self._kind = kind
        self._whole = to_struct(kind)
        # Attributes may have any name; a Python class's have not.
        names = {f"a{index}": field.name for index, field in enumerate(kind)}
        fields = [(place, _Attribute | None, None) for place in names]
        wanted = msgspec.defstruct("Wanted", fields, rename=names, gc=False)
        self._decode = msgspec.json.Decoder(wanted).decode
        self._nothing = wanted()
        self._columns = [
            (attrgetter(place), field.type, _from_value(field.type))
            for place, field in zip(names, kind, strict=True)
        ]

    def __reduce__(self) -> tuple[Any, ...]:
        """Made anew where it travels to, an executor: decoders don't."""
        return TypedImages, (self._kind,)

    def column(self, raws: Sequence[Raw]) -> pa.Array:
        """The images (wire bytes, empty where there is none) as one column."""
        try:
            items = [self._decode(raw) if bytes(raw) else self._nothing for raw in raws]
        except msgspec.ValidationError:  # an emulator's: {"N": 1}
            rows = [self._whole({"M": _item.decode(raw)}) if bytes(raw) else None for raw in raws]
            return pa.array(rows, self._kind)
        columns = []
        for get, kind, made in self._columns:
            values = map(get, items)
            found = [None if value is None else made(value) for value in values]
            columns.append(pa.array(found, kind))
        missing = pa.array([item is self._nothing for item in items])
        return pa.StructArray.from_arrays(columns, fields=list(self._kind), mask=missing)


def _from_value(kind: pa.DataType) -> Callable[[_Attribute], Any]:
    convert = converter(kind)
    if pa.types.is_string(kind):

        def text(value: _Attribute) -> Any:
            return convert(value.wire()) if value.S is None else value.S

        return text
    if pa.types.is_integer(kind):
        # So many digits fit, whatever they are.
        safe = len(str(2 ** (kind.bit_width - 1))) - 1

        def whole(value: _Attribute) -> Any:
            digits = value.N or ""
            is_safe = len(digits) <= safe and digits.isascii() and digits.isdecimal()
            return int(digits) if is_safe else convert(value.wire())

        return whole
    return lambda value: convert(value.wire())
