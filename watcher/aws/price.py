"""The price of reading a stream: each GetRecords call is billed, but for Lambda's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

PRICE = 0.02
"""Dollars for 100,000 GetRecords calls in us-east-1, as of November 2026.

https://aws.amazon.com/dynamodb/pricing/on-demand/ ("DynamoDB Streams")
"""
FREE = 2_500_000
"""Calls a month that are free in each region, as of November 2026.

https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/CostOptimization_StreamsUsage.html
"""
MONTH_SECONDS = 365.25 / 12 * 24 * 3600

# A beginning, in which all is read that waits, says nothing of a month.
_SECONDS_MIN = 60.0


class Bill(NamedTuple):
    """GetRecords calls made, and what they come to a month."""

    calls: int
    month: float | None
    """In dollars, at the pace so far; None while that is too short to say."""

    def __str__(self) -> str:
        calls = f"{self.calls:,} GetRecords calls"
        return calls if self.month is None else f"{calls}: {dollars(self.month)} a month"


def bill(calls: Mapping[str, int], seconds: float, price: float = PRICE) -> Bill:
    """The bill for calls made within so many seconds, by region; "" where nobody is billed."""
    month = None
    if seconds >= _SECONDS_MIN:
        factor = MONTH_SECONDS / seconds
        month = sum(a_month(count * factor, price) for region, count in calls.items() if region)
    return Bill(sum(calls.values()), month)


def a_month(calls: float, price: float = PRICE) -> float:
    """Returns the price of so many calls a month in one region, in dollars; the first are free."""
    return max(0.0, calls - FREE) * price / 100_000


def polling(shards: int, pause: float, price: float = PRICE) -> float:
    """Returns the price a month of reading a region's idle shards every so many seconds."""
    return a_month(shards * MONTH_SECONDS / pause, price)


def dollars(amount: float) -> str:
    """An amount for people."""
    return f"${amount:,.2f}"
