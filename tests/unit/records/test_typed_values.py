"""Values as the types of a schema; what does not fit is null."""

from decimal import Decimal

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa

from watcher.records.typed_values import converter


@pytest.mark.parametrize(
    ("digits", "scale", "value"),
    [("12.5", 0, None), ("12.0", 0, "12"), ("12.5", 2, "12.50"), ("1" * 39, 0, None)],
)
def test_a_number_that_does_not_fit_a_decimal_is_null(
    digits: str, scale: int, value: str | None
) -> None:
    convert = converter(pa.decimal128(38, scale))

    assert convert({"N": digits}) == (value and Decimal(value))


@pytest.mark.parametrize("text", ["NaN", "Infinity", "abc", ""])
def test_an_emulator_s_number_that_is_none_is_null(text: str) -> None:
    for kind in (pa.decimal128(38, 2), pa.int32()):
        assert converter(kind)({"N": text}) is None
    assert converter(pa.float64())({"N": "abc"}) is None
