"""The columns of a mirror as Iceberg's schema, and back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    TimestamptzType,
)

from watcher.errors import UsageError
from watcher.mirror.columns import KIND

_TYPES: Final[tuple[tuple[pa.DataType, IcebergType], ...]] = (
    (pa.string(), StringType()),
    (pa.bool_(), BooleanType()),
    (pa.binary(), BinaryType()),
    (pa.int32(), IntegerType()),
    (pa.int64(), LongType()),
    (pa.float32(), FloatType()),
    (pa.float64(), DoubleType()),
    (pa.timestamp("us", tz="UTC"), TimestamptzType()),
    (pa.date32(), DateType()),
)
_FIELD_ID: Final = b"PARQUET:field_id"
_KIND: Final = "DynamoDB "
"""Before the one type of attributes that a column has grown from, in its comment."""


def iceberg_type(field: pa.Field) -> IcebergType:
    """Returns the type of a column. Raises UsageError where Iceberg has none."""
    for ours, theirs in _TYPES:
        if ours == field.type:
            return theirs
    if pa.types.is_decimal(field.type):
        return DecimalType(field.type.precision, field.type.scale)
    if pa.types.is_list(field.type):
        return ListType(element_id=-1, element_type=StringType(), element_required=False)
    raise UsageError(f"Iceberg has no {field.type}: give int", "image_schema", field.name)


def comment(field: pa.Field) -> str | None:
    """Returns the comment of a column: the attributes that it is for."""
    kind = (field.metadata or {}).get(KIND)
    return None if kind is None else _KIND + kind.decode()


def iceberg_schema(columns: Iterable[pa.Field]) -> Schema:
    """Returns columns as a new table's schema; the catalog numbers the fields again."""
    return Schema(
        *(
            NestedField(number, field.name, iceberg_type(field), required=False, doc=comment(field))
            for number, field in enumerate(columns, 1)
        )
    )


def arrow_schema(schema: Schema) -> pa.Schema:
    """Returns a table's columns, with the numbers that its files have to name them by."""
    return pa.schema([_arrow_field(field) for field in schema.fields])


def _arrow_field(field: NestedField) -> pa.Field:
    metadata = {_FIELD_ID: str(field.field_id).encode()}
    if field.doc and field.doc.startswith(_KIND):
        metadata[KIND] = field.doc.removeprefix(_KIND).encode()
    return pa.field(field.name, _arrow_type(field.field_type), metadata=metadata)


def _arrow_type(kind: IcebergType) -> pa.DataType:
    if isinstance(kind, DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, ListType):
        number = {_FIELD_ID: str(kind.element_id).encode()}
        return pa.list_(pa.field("element", _arrow_type(kind.element_type), metadata=number))
    for ours, theirs in _TYPES:
        if theirs == kind:
            return ours
    raise UsageError(f"a mirror has no columns of the type {kind}")
