"""Which keys a call wrote, and who made it: CloudTrail's documented events, read."""

from typing import Any

import msgspec
import pytest

from tests.support import trails
from tests.support.trails import ACCOUNT, ARN, REPLICATING, Event, role
from watcher.aws.trail_events import REPLICATION, Call, ItemWrite, calls_in

SECOND = 1_795_377_845
KEY = {"PK": "ada", "SK": "order-7"}


def calls(*events: Event, tables: frozenset[str] = frozenset((ARN,))) -> list[Call]:
    return [*calls_in(trails.content(*events), tables)]


def writes(event: Event) -> list[ItemWrite]:
    (call,) = calls(event)
    return call.writes_to(ARN)


@pytest.mark.parametrize(
    ("event", "removes"),
    [
        (trails.put(SECOND), False),
        (trails.put(SECOND, resources=None), False),
        (trails.update(SECOND), False),
        (trails.delete(SECOND), True),
    ],
)
def test_a_call_about_one_item(event: Event, removes: bool) -> None:
    assert writes(event) == [ItemWrite("orders", KEY, removes)]


@pytest.mark.parametrize(
    ("identity", "name"),
    [
        ({"type": "IAMUser", "arn": "arn:aws:iam::1:user/ops/Mateo"}, "user/Mateo"),
        ({"type": "Root", "arn": f"arn:aws:iam::{ACCOUNT}:root"}, "root"),
        ({"type": "FederatedUser", "arn": "arn:aws:sts::1:federated-user/e"}, "federated-user/e"),
        ({"type": "AssumedRole", "arn": f"arn:aws:sts::{ACCOUNT}:assumed-role/x/y"}, "role/x"),
        ({"type": "AWSService", "invokedBy": "backup.amazonaws.com"}, "backup.amazonaws.com"),
        ({"type": "AWSAccount", "principalId": "AROAX:y", "accountId": "9"}, "AROAX"),
        (role("AWSServiceRoleForDynamoDBReplication", path=REPLICATING), REPLICATION),
        (role("evil", "AWSServiceRoleForDynamoDBReplication"), "role/evil"),
        (role("AWSServiceRoleForDynamoDBReplication"), "role/AWSServiceRoleForDynamoDBReplication"),
        ({"type": "AWSService", "invokedBy": "replication.dynamodb.amazonaws.com"}, REPLICATION),
        ({}, "a caller without a name"),
    ],
)
def test_callers_of_all_kinds_have_a_name(identity: dict[str, Any], name: str) -> None:
    (call,) = calls({**trails.put(SECOND), "userIdentity": identity})
    assert call.caller.name == name


def test_a_transaction_in_its_documented_form_with_capitals_and_without() -> None:
    rows = [
        {"operation": "Put", "tableName": "orders", "key": {"PK": "a"}, "items": ["PK"]},
        {"operation": "Update", "tableName": "orders", "key": {"PK": "b"}},
        {"operation": "Delete", "TableName": "orders", "key": {"PK": "c"}},
        {"operation": "ConditionCheck", "TableName": "orders", "Key": {"PK": "d"}},
        {"operation": "Put", "tableName": "others", "key": {"PK": "e"}},
    ]
    found = writes(trails.event("TransactWriteItems", SECOND, {"requestItems": rows}))
    assert found == [
        ItemWrite("orders", {"PK": key}, removes)
        for key, removes in zip("abc", (False, False, True), strict=True)
    ]


PUT = {"operation": "Put", "key": {"PK": "a"}}
DELETE = {"operation": "Delete", "key": {"PK": "b"}}
OF_ORDERS = {"tableName": "orders"}


@pytest.mark.parametrize(
    "asked",
    [
        [PUT | OF_ORDERS, DELETE | OF_ORDERS],
        {
            "orders": [
                {"putRequest": {"key": {"PK": "a"}, "items": ["PK", "total"]}},
                {"deleteRequest": {"key": {"PK": "b"}}},
            ]
        },
        {"orders": [{"PutRequest": {"Key": {"PK": "a"}}}, {"DeleteRequest": {"Key": {"PK": "b"}}}]},
        {ARN: [PUT, DELETE]},
    ],
    ids=["list", "map", "capitals", "by-arn"],
)
def test_a_batch_in_each_form(asked: Any) -> None:
    found = writes(trails.event("BatchWriteItem", SECOND, {"requestItems": asked}))
    told = [(each.key, each.removes) for each in found]
    assert told == [({"PK": "a"}, False), ({"PK": "b"}, True)]


@pytest.mark.parametrize(
    "parameters",
    [
        None,
        {"omitted": True, "originalSize": 120_000, "reason": "requestParameters too large"},
        {"requestItems": {"orders": "***"}},
    ],
)
def test_a_batch_whose_items_are_not_told_may_have_written_any(parameters: Any) -> None:
    assert writes(trails.event("BatchWriteItem", SECOND, parameters)) == [ItemWrite()]


def test_numbers_of_a_key_keep_their_digits() -> None:
    number = "1234567890123456789012345678901234567.8"
    event = trails.put(SECOND)
    event["requestParameters"]["key"] = msgspec.Raw(b'{"PK": %s}' % number.encode())
    found = [*calls_in(msgspec.json.encode({"Records": [event]}), frozenset((ARN,)))]
    assert found[0].writes[0].key == {"PK": number}


def test_other_events_are_passed_over() -> None:
    other_table = trails.put(SECOND, table=ARN.replace("orders", "orders-2"))
    other_region = trails.put(SECOND, table=ARN.replace("us-east-1", "eu-west-1"))
    other_account = trails.put(SECOND, table=ARN.replace(ACCOUNT, "999999999999"))
    read = trails.event("GetItem", SECOND, {"tableName": "orders", "key": KEY}, readOnly=True)
    other_service = trails.put(
        SECOND, eventSource="s3.amazonaws.com", note="dynamodb.amazonaws.com"
    )
    update_table = trails.event("UpdateTable", SECOND, {"tableName": "orders"})
    assert not calls(other_table, other_region, other_account, read, other_service, update_table)
    select = "SELECT * FROM orders WHERE PK = 'a' AND n = ***(Redacted)"
    check = {"operation": "ConditionCheck", "TableName": "orders", "Key": {"PK": "d"}}
    checks = trails.event("TransactWriteItems", SECOND, {"requestItems": [check]})
    assert not calls(trails.statement(SECOND, select), checks)


EVENT = b'{"Records": [{"eventSource": "dynamodb.amazonaws.com", "eventName": "PutItem"}]}'


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b'{"Records": [{"a"', b"\xff\x00", EVENT])
def test_what_is_no_log_file_is_refused(content: bytes) -> None:
    with pytest.raises((msgspec.DecodeError, UnicodeDecodeError, ValueError)):
        list(calls_in(content, frozenset((ARN,))))
