"""The price of reading a stream: GetRecords calls are billed, except Lambda's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

PRICE = 0.02
"""Dollars per 100,000 GetRecords calls in us-east-1, as of November 2026.

https://aws.amazon.com/dynamodb/pricing/on-demand/ ("DynamoDB Streams")
"""
FREE = 2_500_000
"""Free calls a month in each region, as of November 2026.

https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/CostOptimization_StreamsUsage.html
"""
MONTH_SECONDS = 365.25 / 12 * 24 * 3600

# The start, with its backlog, can't be projected to a month.
_SECONDS_MIN = 60.0


class Bill(NamedTuple):
    """The number of GetRecords calls, and their price a month."""

    calls: int
    month: float | None
    """Dollars a month, at the rate so far; None while that time is too short."""

    def __str__(self) -> str:
        calls = f"{self.calls:,} GetRecords calls"
        return calls if self.month is None else f"{calls}: {dollars(self.month)} a month"


def bill(calls: Mapping[str, int], seconds: float, price: float = PRICE) -> Bill:
    """Returns the bill for calls made within `seconds`, by region; "" for unbilled ones."""
    month = None
    if seconds >= _SECONDS_MIN:
        factor = MONTH_SECONDS / seconds
        month = sum(a_month(count * factor, price) for region, count in calls.items() if region)
    return Bill(sum(calls.values()), month)


def a_month(calls: float, price: float = PRICE) -> float:
    """Returns the price in dollars of `calls` a month in one region, beyond the free ones."""
    return max(0.0, calls - FREE) * price / 100_000


def polling(shards: int, pause: float, price: float = PRICE) -> float:
    """Returns the monthly price of polling a region's idle shards every `pause` seconds."""
    return a_month(shards * MONTH_SECONDS / pause, price)


def dollars(amount: float) -> str:
    """Returns an amount for display."""
    return f"${amount:,.2f}"
