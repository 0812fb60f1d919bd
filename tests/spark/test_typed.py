"""What an attribute's value is in a type, and which types images can't have."""

from decimal import Decimal

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DayTimeIntervalType,
    IntegerType,
    MapType,
    NullType,
    StringType,
    StructType,
    VarcharType,
    VariantType,
    YearMonthIntervalType,
)

from watcher.errors import UsageError
from watcher.record.typed import converter
from watcher.spark.typed import refuse_unfit


@pytest.mark.parametrize(
    ("digits", "scale", "value"),
    [("12.5", 0, None), ("12.0", 0, "12"), ("12.5", 2, "12.50"), ("1" * 39, 0, None)],
)
def test_a_number_that_does_not_fit_a_decimal_is_null(
    digits: str, scale: int, value: str | None
) -> None:
    convert = converter(pa.decimal128(38, scale))

    assert convert({"N": digits}) == (value and Decimal(value))


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (VariantType(), "variant"),
        (DayTimeIntervalType(0, 0), "interval day"),
        (YearMonthIntervalType(0, 0), "interval year"),
        (ArrayType(VarcharType(10)), "varchar(10)"),
        (MapType(IntegerType(), StringType()), "map<int,string>"),
        (NullType(), "void"),
    ],
)
def test_a_type_that_no_attribute_can_become_is_refused(kind: DataType, told: str) -> None:
    image = StructType().add("pk", "string").add("deep", StructType().add("inside", kind))
    schema = StructType().add("keys", "string").add("new_image", image)

    with pytest.raises(UsageError) as error:
        refuse_unfit(schema)

    assert str(error.value).startswith(f"imageSchema: inside can't be {told}; possible are string,")


def test_a_string_for_an_image_is_fine() -> None:
    refuse_unfit(StructType().add("new_image", "string").add("old_image", "string"))
