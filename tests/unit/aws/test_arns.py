"""What names a stream, on AWS and on compatible engines."""

import pytest

from watcher.aws import arns

TABLE = "arn:aws:dynamodb:eu-west-1:123456789012:table/orders"
ALTERNATOR = "arn:scylla:alternator:alternator_orders:scylla:table/orders"
KCL = (
    "arn:aws:dynamodb:us-east-1:797456418907:table/alternator_orders@orders"
    "/stream/2025-12-18T17:38:48.952"
)
STREAM_ID = "S8a2b1c30-0f4e-11f0-9cd2-0242ac120002"


@pytest.mark.parametrize(
    ("text", "is_stream", "region"),
    [
        ("orders", False, None),
        (TABLE, False, "eu-west-1"),
        (f"{TABLE}/stream/2026-11-21T10:45:05.313486", True, "eu-west-1"),
        ("arn:aws-cn:dynamodb:cn-north-1:1:table/x", False, "cn-north-1"),
        ("arn:aws:dynamodb:ddblocal:000000000000:table/x/stream/1", True, "ddblocal"),
        (ALTERNATOR, False, None),
        (f"{ALTERNATOR}/stream/1", True, None),
        (KCL, True, "us-east-1"),
        (STREAM_ID, True, None),
    ],
)
def test_a_name_is_a_streams_or_a_tables(text: str, is_stream: bool, region: str | None) -> None:
    assert arns.parse_name(text) == arns.Name(text, is_stream, region)
    assert arns.is_stream(text) == is_stream


@pytest.mark.parametrize(
    "text",
    ["", "a b", "é-table", "arn:aws:s3:::bucket", f"{TABLE}/index/y", "arn:aws:sqs:eu-west-1:1:x"],
)
def test_other_things_are_none(text: str) -> None:
    assert arns.parse_name(text) is None


@pytest.mark.parametrize(
    ("arn", "table", "name"),
    [
        (f"{TABLE}/stream/1", TABLE, "orders"),
        (TABLE, TABLE, "orders"),
        (f"{ALTERNATOR}/stream/1", ALTERNATOR, "orders"),
        (KCL, KCL.partition("/stream/")[0], "orders"),
        (STREAM_ID, STREAM_ID, STREAM_ID),
        ("orders", "orders", "orders"),
    ],
)
def test_the_table_of_a_stream(arn: str, table: str, name: str) -> None:
    assert arns.table_of(arn) == table
    assert arns.table_name(arn) == name


def test_a_region_is_real_or_an_emulators() -> None:
    assert all(
        map(arns.is_aws_region, ["us-east-1", "us-gov-west-1", "ap-southeast-7", "eusc-de-east-1"])
    )
    assert not any(map(arns.is_aws_region, ["ddblocal", "local", "", None, "alternator_orders"]))


def test_what_is_read_at_one_endpoint_is_of_one_region_and_account() -> None:
    assert arns.place_of(f"{TABLE}/stream/1") == arns.place_of(TABLE) == TABLE.split(":table")[0]
    assert arns.place_of(STREAM_ID) == STREAM_ID


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
