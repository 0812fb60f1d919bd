"""Images as typed columns: what an attribute's value is in the type that the user wants it in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa
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
from watcher.record.typed import to_struct

_item: Final = msgspec.json.Decoder(dict[str, dict[str, Any]])
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


def typed_images(raws: Sequence[msgspec.Raw], kind: pa.StructType) -> pa.Array:
    """The images as structs; an attribute that is absent, or not of its type, is null."""
    convert = to_struct(kind)
    rows = [convert({"M": _item.decode(raw)}) if bytes(raw) else None for raw in raws]
    return pa.array(rows, kind)
