"""Lambda's filter patterns, keys and kinds: what they let through, alone and as one test."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from watcher import Record, UsageError
from watcher.records.filters import record_filter

WIRE: dict[str, Any] = {
    "eventID": "1",
    "eventName": "MODIFY",
    "awsRegion": "us-east-1",
    "userIdentity": {"Type": "Service", "PrincipalId": "dynamodb.amazonaws.com"},
    "dynamodb": {
        "ApproximateCreationDateTime": 1790000000,
        "SequenceNumber": "100000000000000000001",
        "SizeBytes": 42,
        "StreamViewType": "NEW_AND_OLD_IMAGES",
        "Keys": {"pk": {"S": "user-42"}, "sk": {"N": "7"}},
        "NewImage": {
            "pk": {"S": "user-42"},
            "sk": {"N": "7"},
            "status": {"S": "Shipped"},
            "note": {"S": ""},
            "total": {"N": "100.50"},
            "big": {"N": "12345678901234567890123456789012345678"},
            "paid": {"BOOL": True},
            "gone": {"NULL": True},
            "blob": {"B": "AAE="},
            "tags": {"SS": ["gift", "red"]},
            "sizes": {"NS": ["1", "2.5"]},
            "none": {"L": []},
            "mixed": {"L": [{"S": "x"}, {"N": "5"}]},
            "lines": {"L": [{"M": {"qty": {"N": "1"}}}, {"M": {"qty": {"N": "9"}}}]},
            "ship": {"M": {"city": {"S": "Delft"}}},
        },
        "OldImage": {"pk": {"S": "user-42"}, "sk": {"N": "7"}, "status": {"S": "open"}},
    },
}


def record(wire: dict[str, Any] = WIRE) -> Record:
    return Record.from_json(json.dumps(wire).encode())


# With every digit of a number.
encoder = msgspec.json.Encoder(decimal_format="number")


def matches(pattern: dict[str, Any], wire: dict[str, Any] = WIRE) -> bool:
    test = record_filter([encoder.encode(pattern).decode()])
    assert test is not None
    return test(record(wire))


def new(name: str, *accepted: Any, **fields: Any) -> dict[str, Any]:
    """A pattern for one attribute of the new image: `new("total.N", …)`, or with fields there."""
    inner: Any = fields or list(accepted)
    for part in reversed(name.split(".")):
        inner = {part: inner}
    return {"dynamodb": {"NewImage": inner}}


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ({"eventName": ["MODIFY"]}, True),
        ({"eventName": ["INSERT"], "awsRegion": ["us-east-1"]}, False),
        ({"userIdentity": {"type": ["Service"]}}, True),
        ({"eventVersion": [{"exists": False}]}, True),
        ({"dynamodb": {"SizeBytes": [{"numeric": [">", 41, "<=", 42]}]}}, True),
        ({"dynamodb": {"SizeBytes": [42]}}, True),
        ({"dynamodb": {"Keys": {"pk": {"S": ["user-42"]}, "sk": {"N": ["7"]}}}}, True),
        ({"dynamodb": {"Keys": {"pk": {"S": ["user-42"]}, "sk": {"N": ["8"]}}}}, False),
        (new("paid.BOOL", True), True),
        (new("paid.BOOL", 1), False),
        (new("blob.B", "AAE="), True),
        (new("total.N", {"numeric": [">", 100, "<", 101]}), True),
        (new("total.N", 100.5), True),
        (new("total.N", "100.50"), True),
        (new("total.N", {"anything-but": [100.5]}), False),
        (new("big.N", {"numeric": ["=", 12345678901234567890123456789012345678]}), True),
        (new("big.N", {"numeric": ["=", 12345678901234567890123456789012345679]}), False),
        (new("total.N", {"numeric": ["<", Decimal("100.5000000000000000000000001")]}), True),
        (new("total.N", Decimal("100.5000000000000000000000001")), False),
        (new("mixed.L", S=["x"], BOOL=[{"exists": False}]), True),
        (new("mixed.L", S=["x"], N=[{"exists": False}]), False),
        (new("mixed.L", S=["x"], N=["5"]), False),  # of two elements
        (new("lines.L.M", qty={"N": ["1"]}, sku=[{"exists": False}]), True),
        (new("status", {"exists": True}), True),
        (new("status.S", {"prefix": "Ship"}), True),
        (new("status.S", {"suffix": "Ship"}), False),
        (new("status.S", {"equals-ignore-case": "shipped"}), True),
        (new("status.S", {"anything-but": ["open", "Shipped"]}), False),
        (new("sizes.NS", 2.5), True),
        (new("none.L", S=[{"exists": False}]), True),
        (new("ship.M.city.S", "Delft"), True),
        (new("lines.L", **{"$or": [{"S": ["1"]}, {"M": {"qty": {"N": [9]}}}]}), True),
        ({"dynamodb": {"NewImage": [{"exists": True}]}}, True),
        ({"$or": [{"eventName": ["REMOVE"]}, new("paid.BOOL", True)]}, True),
        ({"eventName": ["INSERT"], "$or": [{"eventID": ["1"]}, {"eventID": ["2"]}]}, False),
        ({"dynamodb": {"$or": [{"SizeBytes": [1]}, {"Keys": {"sk": {"N": [7]}}}]}}, True),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_a_pattern(pattern: dict[str, Any], expected: bool) -> None:
    assert matches(pattern) is expected


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("{", "filters: not JSON: "),
        ("f.json", "filters: 'f.json': a comparison (= <> < <= > >= between in) should stand at"),
        ("[]", "filters: not a JSON object"),
        ("@no/such/file", "can't read no/such/file: No such file"),
        ("{}", "filters: pattern: empty"),
        ({"eventName": []}, "eventName: empty"),
        ({"dynamodb": {"NewImage": "x"}}, "dynamodb.NewImage: not a JSON object"),
        ({"eventname": ["INSERT"]}, 'unknown field "eventname"; did you mean eventName?'),
        ({"eventName": "INSERT"}, 'eventName: put the accepted values into a list: ["INSERT"]'),
        ({"eventName": [["INSERT"]]}, "eventName[0]: give a string, a number"),
        (
            new("status.S", {"prefx": "o"}),
            'dynamodb.NewImage.status.S[0]: unknown operator "prefx"; did you mean prefix?',
        ),
        (new("status", "open"), "dynamodb.NewImage.status[0]: only exists can stand here; a value"),
        (new("status.T", "o"), 'dynamodb.NewImage.status: unknown type "T"; an attribute\'s value'),
        (new("status.S", {"prefix": 3}), "dynamodb.NewImage.status.S[0].prefix: give a string"),
        (new("status.S", {"prefix": "a", "suffix": "b"}), "S[0]: give one operator"),
        (new("status.S", {"exists": "yes"}), "S[0].exists: give true or false"),
        (new("total.N", {"numeric": [">"]}), "N[0].numeric: give comparisons such as"),
        (new("status.S", {"anything-but": []}), "S[0].anything-but: empty"),
        ('{"dynamodb": {"SizeBytes": [NaN]}}', "dynamodb.SizeBytes[0]: not a number that"),
        ('{"dynamodb": {"SizeBytes": [1e99999999999999999999]}}', "SizeBytes[0]: not a number"),
        (new("total.N", {"numeric": [">", float("nan")]}), "N[0].numeric: not a number that"),
        ({"eventSourceARN": [{"prefix": "arn:"}]}, "eventSourceARN: all records are of the stream"),
        ({"$or": {}}, "$or: not a list of objects"),
        ({"$or": [{"eventName": ["X"]}, {"nosuch": [1]}]}, '$or[1]: unknown field "nosuch"'),
    ],
    ids=str,
)
def test_a_bad_pattern_is_refused_with_its_place(
    pattern: str | dict[str, Any], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as caught:
        record_filter([pattern])
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


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


def test_a_key_without_its_type_has_no_value() -> None:
    """`--key` ended the watch with a traceback."""
    test = record_filter(key=["pk=a"])
    wire = WIRE | {"dynamodb": {"SequenceNumber": "1", "Keys": {"pk": {}}}}
    assert test is not None and not test(record(wire))


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
