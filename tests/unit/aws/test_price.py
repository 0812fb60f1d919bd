"""What reading costs, and the table of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from watcher.aws.price import MONTH_SECONDS, a_month, bill, dollars, polling

COST = Path(__file__).parents[3] / "docs" / "cost.md"


def test_the_first_calls_of_a_month_are_free_in_each_region() -> None:
    assert a_month(2_500_000) == 0
    assert a_month(2_600_000) == pytest.approx(0.02)
    half = MONTH_SECONDS / 2
    assert bill({"us-east-1": 1_000_000, "eu-west-1": 1_000_000}, half).month == 0
    assert bill({"us-east-1": 2_000_000}, half).month == pytest.approx(0.30)


def test_a_price_of_ones_own_and_emulators() -> None:
    calls = {"us-east-1": 2_600_000, "": 10**9}
    assert bill(calls, MONTH_SECONDS, price=0.05).month == pytest.approx(0.05)


def test_what_is_too_short_says_nothing_of_a_month() -> None:
    assert str(bill({"us-east-1": 1234}, 59)) == "1,234 GetRecords calls"
    said = str(bill({"us-east-1": 6000}, 60))
    assert re.fullmatch(r"6,000 GetRecords calls: \$[\d.]+ a month", said)


def test_the_documentations_table_is_computed() -> None:
    rows = re.findall(
        r"^\| ([\d,]+) \| (\S+) \| (\S+) \| (\S+) \| \$0.00 \|$", COST.read_text(), re.M
    )
    assert [row[0] for row in rows] == ["1", "10", "100", "1,000"]
    for shards, *costs in rows:
        count = int(shards.replace(",", ""))
        assert costs == [dollars(polling(count, pause)) for pause in (1, 5, 60)]
