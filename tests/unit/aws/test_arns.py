"""What names a stream, on AWS and on compatible engines."""

import pytest

from watcher.aws import arns

TABLE = "arn:aws:dynamodb:eu-west-1:123456789012:table/orders"
CHINA = "arn:aws-cn:dynamodb:cn-north-1:1:table/x"
LOCAL = "arn:aws:dynamodb:ddblocal:000000000000:table/x"
ALTERNATOR = "arn:scylla:alternator:alternator_orders:scylla:table/orders"
KCL = (
    "arn:aws:dynamodb:us-east-1:797456418907:table/alternator_orders@orders"
    "/stream/2025-12-18T17:38:48.952"
)
STREAM_ID = "S8a2b1c30-0f4e-11f0-9cd2-0242ac120002"


@pytest.mark.parametrize(
    ("text", "is_stream", "region", "table", "name"),
    [
        ("orders", False, None, "orders", "orders"),
        (TABLE, False, "eu-west-1", TABLE, "orders"),
        (f"{TABLE}/stream/2026-11-21T10:45:05.313486", True, "eu-west-1", TABLE, "orders"),
        (CHINA, False, "cn-north-1", CHINA, "x"),
        (f"{LOCAL}/stream/1", True, "ddblocal", LOCAL, "x"),
        (ALTERNATOR, False, None, ALTERNATOR, "orders"),
        (f"{ALTERNATOR}/stream/1", True, None, ALTERNATOR, "orders"),
        (KCL, True, "us-east-1", KCL.partition("/stream/")[0], "orders"),
        (STREAM_ID, True, None, STREAM_ID, STREAM_ID),
    ],
)
def test_a_name_is_a_streams_or_a_tables(
    text: str, is_stream: bool, region: str | None, table: str, name: str
) -> None:
    assert arns.parse_name(text) == arns.Name(text, is_stream, region)
    assert arns.is_stream(text) == is_stream
    assert (arns.table_of(text), arns.table_name(text)) == (table, name)


@pytest.mark.parametrize(
    "text",
    ["", "a b", "é-table", "arn:aws:s3:::bucket", f"{TABLE}/index/y", "arn:aws:sqs:eu-west-1:1:x"],
)
def test_other_things_are_none(text: str) -> None:
    assert arns.parse_name(text) is None


def test_tables_of_one_name_are_told_apart_by_region_or_account() -> None:
    here, there = "arn:aws:dynamodb:us-east-1:1:table/", "arn:aws:dynamodb:eu-west-1:1:table/"
    other = "arn:aws:dynamodb:us-east-1:2:table/"
    asked = [f"{here}orders/stream/1", f"{here}orders/stream/2", f"{here}users", f"{there}orders"]
    found = arns.short_table_names(asked)
    assert list(found.values()) == ["us-east-1/orders", "users", "eu-west-1/orders"]
    assert list(arns.short_table_names([f"{here}a", f"{other}a"]).values()) == ["1/a", "2/a"]
    assert arns.short_table_names([STREAM_ID, "orders"]) == {
        STREAM_ID: STREAM_ID,
        "orders": "orders",
    }
