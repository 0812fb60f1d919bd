"""What an attribute's value is in a type, and which types images can't have."""

import pickle
from decimal import Decimal
from typing import Any

import pytest

pytest.importorskip("pyspark")

import msgspec
import pyarrow as pa
from msgspec import Raw
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
from watcher.spark.typed import TypedImages, refuse_unfit


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


KIND = pa.struct(
    [
        ("text", pa.string()),
        ("small", pa.int16()),
        ("big", pa.int64()),
        ("exact", pa.decimal128(10, 2)),
        ("about", pa.float64()),
        ("yes", pa.bool_()),
        ("bytes", pa.binary()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("tags", pa.list_(pa.string())),
        ("an odd.name", pa.map_(pa.string(), pa.int32())),
        ("deep", pa.struct([("zip", pa.string())])),
    ]
)
VALUES: list[Any] = [
    *({"S": text} for text in ("", "a\u2028\n", "2026-11-21T08:00:00Z")),
    *({"N": digits} for digits in ("7", "-7", "007", "1E2", "12.50", "32768", "9" * 18, "9" * 30)),
    *({"BOOL": True}, {"NULL": True}, {"B": "AAE="}, {"SS": ["a", "b"]}, {"NS": ["1", "2"]}),
    *({"L": [{"S": "a"}, {"N": "1"}]}, {"M": {"zip": {"S": "3511"}}}, {"M": {}}, {"BS": ["AAE="]}),
]


def test_columns_hold_what_whole_items_do() -> None:
    """Each value in each type, through the fast way and through the plain one."""
    items = [{name: value, "more": value} for value in VALUES for name in KIND.names]
    raws = [Raw(msgspec.json.encode(item)) for item in items]
    raws += [Raw(b""), Raw(b"{}")]
    convert = converter(KIND)
    rows = [convert({"M": msgspec.json.decode(raw)}) if bytes(raw) else None for raw in raws]

    column = TypedImages(KIND).column(raws)

    assert column.equals(pa.array(rows, KIND))


def test_an_emulator_s_values_are_read_all_the_same() -> None:
    raws = [Raw(b'{"text": {"S": 7}, "big": {"N": "5"}}')]

    assert TypedImages(KIND).column(raws).to_pylist()[0]["big"] == 5


def test_it_travels_to_an_executor() -> None:
    kind = pa.struct([("n", pa.int32()), ("l", pa.list_(pa.struct([("s", pa.string())])))])
    image = Raw(b'{"n":{"N":"1"},"l":{"L":[{"M":{"s":{"S":"x"}}}]}}')
    there = pickle.loads(pickle.dumps(TypedImages(kind)))
    assert there.column([image]).to_pylist() == [{"n": 1, "l": [{"s": "x"}]}]
