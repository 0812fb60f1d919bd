"""What an attribute's value is in a type, and which types images can't have."""

from decimal import Decimal

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa

from watcher.spark.typed import converter


@pytest.mark.parametrize(
    ("digits", "scale", "value"),
    [("12.5", 0, None), ("12.0", 0, "12"), ("12.5", 2, "12.50"), ("1" * 39, 0, None)],
)
def test_a_number_that_does_not_fit_a_decimal_is_null(
    digits: str, scale: int, value: str | None
) -> None:
    convert = converter(pa.decimal128(38, scale))

    assert convert({"N": digits}) == (value and Decimal(value))
