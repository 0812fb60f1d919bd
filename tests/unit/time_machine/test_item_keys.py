"""The key of the one item that is asked for."""

import json
from typing import Any

import pytest

from watcher.errors import UsageError
from watcher.records.record import Record
from watcher.time_machine.item_keys import ItemKey, identity

TYPES = {"PK": "S", "n": "N", "b": "B"}


def record(**keys: Any) -> Record:
    change = {"SequenceNumber": "1", "Keys": keys}
    return Record.from_json(json.dumps({"dynamodb": change}).encode())


def test_values_become_the_wire_s_own() -> None:
    key = ItemKey({"PK": "a", "n": 5, "b": b"\x00"})
    assert key.wire(TYPES) == {"PK": {"S": "a"}, "n": {"N": "5"}, "b": {"B": "AA=="}}
    assert ItemKey(["PK=a=b"]).wire({"PK": "S"}) == {"PK": {"S": "a=b"}}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["PK=a", "n=five", "b=AA=="], "key n=five: n is a number"),
        (["PK=a", "n=5", "b=?"], "key b=?: b is binary: give base64"),
        ([], "give the item's whole key: --key NAME=VALUE for each of its parts"),
        (["pk"], "key pk: give NAME=VALUE"),
        (["pk=a", "pk=b"], "key pk: give it once: this is about one item"),
        (["id=a"], "key id: no such key attribute; the table has PK, b, n"),
        (["PK=a", "n=5"], "key PK=a n=5: an item's key is PK and n and b: give b as well"),
    ],
)
def test_wrong_types_and_missing_parts_are_refused(given: list[str], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        ItemKey(given).wire(TYPES)
    assert str(caught.value) == message


def test_a_number_is_the_same_however_it_is_written() -> None:
    assert ItemKey(["n=5.0"]).matches_record(record(n={"N": "5"}))
    assert not ItemKey(["n=5.1"]).matches_record(record(n={"N": "5"}))


def test_without_a_table_the_first_record_tells_the_types() -> None:
    with pytest.raises(UsageError, match="n is a number"):
        ItemKey(["n=five"]).matches_record(record(n={"N": "5"}))


def test_an_item_is_the_same_whatever_the_order_of_its_keys() -> None:
    assert identity(b'{"a":{"S":"1"},"b":{"N":"2"}}') == identity(b'{"b":{"N":"2"},"a":{"S":"1"}}')
