"""Images as typed columns: what an attribute's value is in the type that the user wants it in."""

from __future__ import annotations

import re
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
from watcher.records.typed_values import Attribute, converter, to_struct

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
    """An attribute's value: one of these; none where there is no attribute."""

    S: str | None = None
    N: str | None = None
    BOOL: bool | None = None
    B: str | None = None
    SS: list[str] | None = None
    M: Raw = _ABSENT
    L: Raw = _ABSENT
    NS: Raw = _ABSENT
    BS: Raw = _ABSENT

    def wire(self) -> Attribute:
        """As it came; nothing for NULL."""
        for name in ("S", "N", "BOOL", "B", "SS"):
            if (content := getattr(self, name)) is not None:
                return {name: content}
        for name in ("M", "L", "NS", "BS"):
            if (raw := getattr(self, name)) is not _ABSENT:
                return {name: msgspec.json.decode(raw)}
        return {}


_NOTHING: Final = _Attribute()
_Column = Callable[[list[_Attribute]], pa.Array]


class TypedImages:
    """Images as structs of some attributes; one that is absent, or not of its type, is null.

    Only these are decoded, all images at once, and made column by column.
    """

    def __init__(self, kind: pa.StructType) -> None:
        self._kind = kind
        self._whole = to_struct(kind)
        # Attributes may have any name; a Python class's have not.
        names = {f"a{index}": field.name for index, field in enumerate(kind)}
        fields = [(place, _Attribute | None, None) for place in names]
        wanted: Any = msgspec.defstruct("Wanted", fields, rename=names, gc=False)
        self._decode = msgspec.json.Decoder(list[wanted | None]).decode
        self._empty = wanted()
        self._columns = [
            (attrgetter(place), _column(field.type))
            for place, field in zip(names, kind, strict=True)
        ]

    def __reduce__(self) -> tuple[Any, ...]:
        """Made anew where it travels to, an executor: decoders don't."""
        return TypedImages, (self._kind,)

    def column(self, raws: Sequence[Raw]) -> pa.Array:
        """The images (wire bytes, empty where there is none) as one column."""
        try:
            items = self._decode(b"[%b]" % b",".join([raw or b"null" for raw in raws]))
        except msgspec.ValidationError:  # an emulator's: {"N": 1}
            rows = [self._whole({"M": _item.decode(raw)}) if raw else None for raw in raws]
            return pa.array(rows, self._kind)
        missing = None
        if not all(items):
            missing = pa.array([item is None for item in items])
            items = [item or self._empty for item in items]
        columns = []
        for get, made in self._columns:
            values = list(map(get, items))
            columns.append(made(values if all(values) else [each or _NOTHING for each in values]))
        return pa.StructArray.from_arrays(columns, fields=list(self._kind), mask=missing)


def _column(kind: pa.DataType) -> _Column:
    """How values become a column: what is most of a type all at once, the rest one by one."""
    convert = converter(kind)

    def converted(value: _Attribute) -> Any:
        return None if value is _NOTHING else convert(value.wire())

    def texts(values: list[_Attribute]) -> pa.Array:
        column = pa.array([value.S for value in values], kind)
        if not column.null_count:
            return column
        found = [converted(value) if value.S is None else value.S for value in values]
        return pa.array(found, kind)

    def sets_of_text(values: list[_Attribute]) -> pa.Array:
        found = [converted(value) if value.SS is None else value.SS for value in values]
        return pa.array(found, kind)

    if pa.types.is_string(kind):
        return texts
    if pa.types.is_list(kind) and pa.types.is_string(kind.value_type):
        return sets_of_text
    if pa.types.is_boolean(kind):
        return lambda values: pa.array([value.BOOL for value in values], kind)
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return _numbers(kind)
    return lambda values: pa.array(list(map(converted, values)), kind)


def _numbers(kind: pa.DataType) -> _Column:
    """Whole or decimal numbers: as DynamoDB writes those that surely fit, Arrow reads them."""
    convert = converter(kind)
    if pa.types.is_integer(kind):
        places, scale = len(str(2 ** (kind.bit_width - 1))) - 1, 0
    else:
        places, scale = kind.precision - kind.scale, kind.scale
    whole = rf"(?:0|[1-9][0-9]{{0,{places - 1}}})" if places else "0"
    fraction = rf"(?:\.[0-9]{{1,{scale}}})?" if scale else ""
    surely_fit = re.compile(rf"(?:-?{whole}{fraction} )*+").fullmatch

    def column(values: list[_Attribute]) -> pa.Array:
        digits = [value.N for value in values]
        found = [each for each in digits if each is not None]
        text = " ".join([*found, ""])
        if surely_fit(text) and text.count(" ") == len(found):
            return pa.array(digits, pa.string()).cast(kind)
        rows = [None if each is None else convert({"N": each}) for each in digits]
        return pa.array(rows, kind)

    return column
