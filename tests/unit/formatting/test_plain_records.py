"""A record as plain JSON values."""

from collections.abc import Iterator
from decimal import Decimal

import pytest

from tests.unit.handlers.test_print_diff import record
from watcher.formatting import style
from watcher.formatting.plain_records import plain, plain_record


@pytest.fixture(autouse=True)
def times_in_utc() -> Iterator[None]:
    style.set_up(color="never", utc=True)
    yield
    style.set_up(color="never")


def test_a_record_as_one_plain_document() -> None:
    new = {
        "n": {"N": "1.50"},
        "i": {"N": "12345678901234567890123456789012345678"},
        "b": {"B": "AAE="},
        "bs": {"BS": ["AAE=", "AA=="]},
        "ss": {"SS": ["b", "a"]},
        "ns": {"NS": ["10", "9"]},
        "m": {"M": {"l": {"L": [{"BOOL": True}, {"NULL": True}]}}},
    }
    assert plain_record(record("INSERT", NewImage=new)) == {
        "eventName": "INSERT",
        "key": {"pk": "a"},
        "old": None,
        "new": {
            "pk": "a",
            "n": 1.5,
            "i": 12345678901234567890123456789012345678,
            "b": "AAE=",
            "bs": ["AA==", "AAE="],
            "ss": ["a", "b"],
            "ns": [9, 10],
            "m": {"l": [True, None]},
        },
        "createdAt": "2026-09-21T14:13:20+00:00",
        "sequenceNumber": "100000000000000000001",
        "shardId": "shard-1",
        "table": "",
        "expiredByTtl": False,
    }


def test_a_number_that_no_json_reader_takes_is_text() -> None:
    assert plain(Decimal("9E99999")) == "9E+99999"
    assert plain({Decimal("9E99999"), Decimal(2), Decimal(1)}) == [1, 2, "9E+99999"]
    assert plain(Decimal("9E125")) == 9 * 10**125
