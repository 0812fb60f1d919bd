"""A column takes a value only if it gives it back exactly."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from watcher.mirror.columns import given_columns
from watcher.mirror.values import converter

CASES: list[tuple[str, dict[str, Any], Any]] = [
    ("float", {"N": "0.1"}, pytest.approx(0.1)),
    ("float", {"N": "16777217"}, None),
    ("float", {"N": "1E+39"}, None),
    ("double", {"N": "0.1"}, 0.1),
    ("double", {"N": "9007199254740993"}, None),
    ("double", {"N": "1E+309"}, None),
    ("double", {"N": "NaN"}, None),
    ("date", {"S": "2026-11-28"}, date(2026, 11, 28)),
    ("date", {"S": "2026-11-28T00:00:00Z"}, date(2026, 11, 28)),
    ("date", {"S": "2026-11-28T05:45:00Z"}, None),
    ("date", {"N": "1795824000"}, date(2026, 11, 28)),
    ("date", {"N": "1795824001"}, None),
    ("timestamp", {"S": "2026-11-28T05:45:00.123456Z"}, 123456),
    ("timestamp", {"S": "2026-11-28T05:45:00.123456000Z"}, 123456),
    ("timestamp", {"S": "2026-11-28T05:45:00.1234567Z"}, None),
    ("timestamp", {"S": "2026-11-28 05:45:00"}, 0),
    ("timestamp", {"N": "1795844700.123456"}, 123456),
    ("timestamp", {"N": "1795844700.1234567"}, None),
    ("timestamp", {"N": "1E+100"}, None),
    ("timestamp", {"S": "soon"}, None),
    ("decimal(5,2)", {"N": "1.5"}, Decimal("1.50")),
    ("decimal(5,2)", {"N": "1.505"}, None),
    ("tinyint", {"N": "127"}, 127),
    ("tinyint", {"N": "128"}, None),
    ("bigint", {"N": "1.5"}, None),
    ("string", {"N": "1.50"}, "1.50"),
    ("string", {"L": [{"N": "1"}]}, "[1]"),
    ("boolean", {"BOOL": False}, False),
    ("binary", {"B": "AAE="}, b"\x00\x01"),
]


@pytest.mark.parametrize(("kind", "value", "found"), CASES)
def test_what_a_type_would_change_stays_out(kind: str, value: dict[str, Any], found: Any) -> None:
    made = converter(given_columns(f"a {kind}").field("a").type)(value)
    if kind == "timestamp" and found is not None:
        found = datetime(2026, 11, 28, 5, 45, microsecond=found, tzinfo=UTC)
    assert made == found
