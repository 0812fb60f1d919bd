"""Filters, keys and kinds as one test."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.unit.records.test_filter_patterns import WIRE, new, record
from watcher import UsageError
from watcher.records.filters import record_filter


def test_several_filters_are_alternatives_from_files_too(tmp_path: Path) -> None:
    file = tmp_path / "pattern.json"
    file.write_text(json.dumps({"eventName": ["REMOVE"]}))
    both = record_filter([f"@{file}", {"eventID": ["2"]}])
    assert both is not None
    assert not both(record())
    assert both(record(WIRE | {"eventName": "REMOVE"}))
    assert both(record(WIRE | {"eventID": "2"}))


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (["pk=user-42"], True),
        (["pk=user-4"], False),
        (["pk=user-4", "pk=user-42"], True),
        (["pk=user-42", "sk=7"], True),
        (["pk=user-42", "sk=8"], False),
        (["sk=7.0"], True),
        (["sk=seven"], False),
        ({"pk": "user-42", "sk": 7}, True),
        ({"sk": Decimal("7.00")}, True),
    ],
)
def test_a_key(key: Any, expected: bool) -> None:
    test = record_filter(key=key)
    assert test is not None
    assert test(record()) is expected


def test_a_binary_key_is_given_in_base64_or_as_bytes() -> None:
    keys = {"pk": {"B": "AAE="}}
    wire = WIRE | {"dynamodb": {"SequenceNumber": "1", "Keys": keys}}
    for key in (["pk=AAE="], {"pk": b"\0\1"}):
        test = record_filter(key=key)
        assert test is not None
        assert test(record(wire))


def test_a_name_that_is_no_key_attribute_is_said_with_those_that_are() -> None:
    test = record_filter(key=["id=1"])
    assert test is not None
    with pytest.raises(UsageError, match="key id: no such key attribute; the table has pk, sk"):
        test(record())


@pytest.mark.parametrize("key", ["pk", "=x"])
def test_a_key_without_a_name_or_a_value_is_refused(key: str) -> None:
    with pytest.raises(UsageError, match="give NAME=VALUE"):
        record_filter(key=[key])


def test_kinds_in_any_case() -> None:
    for only in ("insert,modify", ["MODIFY"], " Modify ", "update", ["insert", "insert,modify"]):
        test = record_filter(only=only)
        assert test is not None
        assert test(record())
        assert not test(record(WIRE | {"eventName": "REMOVE"}))
    with pytest.raises(UsageError, match=r'only: unknown kind "insrt"; did you mean insert\?'):
        record_filter(only="insrt")
    with pytest.raises(UsageError, match=r'only: unknown kind ""; use insert, modify, remove'):
        record_filter(only="")


def test_removals_by_time_to_live_alone_or_with_others() -> None:
    service = {"type": "Service", "principalId": "dynamodb.amazonaws.com"}
    removed = record(WIRE | {"eventName": "REMOVE", "userIdentity": None})
    expired = record(WIRE | {"eventName": "REMOVE", "userIdentity": service})
    for only, of_others in (("ttl", False), ("remove", True), ("insert,ttl", False)):
        test = record_filter(only=only)
        assert test is not None
        assert [test(removed), test(expired)] == [of_others, True]


def test_key_kind_and_filter_narrow_down() -> None:
    test = record_filter([new("paid.BOOL", True)], ["pk=user-42"], "modify")
    assert test is not None
    assert test(record())
    assert not test(record(WIRE | {"eventName": "INSERT"}))
    assert record_filter() is None
