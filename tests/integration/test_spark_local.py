"""A batch read of Spark's on Amazon's DynamoDB Local, with real rotations."""

import json
from typing import Any

import pytest

pytest.importorskip("pyspark")

from tests.spark.conftest import WHOLE
from tests.spark.conftest import spark as spark
from tests.support.dynamodb_local import DynamoDBLocal
from tests.support.program import run

pytestmark = [pytest.mark.spark, pytest.mark.timeout(WHOLE)]


def write(server: DynamoDBLocal, table: str, first: int, count: int) -> None:
    """Puts with a version and binary data, and some deletes."""
    client = server.client()
    for number in range(first, first + count):
        key = {"PK": {"S": f"k{number % 7}"}, "SK": {"S": "s"}}
        if number % 11 == 10:
            client.delete_item(TableName=table, Key=key)
        else:
            data = {"v": {"N": str(number)}, "raw": {"B": bytes([number % 256])}}
            client.put_item(TableName=table, Item={**key, **data})


def printed(server: DynamoDBLocal, arn: str) -> list[dict[str, Any]]:
    """What the watch prints of the same stream."""
    words = ("--no-follow", "--print-json", "--from", "trim-horizon")
    watch = run(arn, *words, env=server.environment)
    assert watch.status == 0, watch.err
    return [json.loads(line) for line in watch.out]


def test_a_batch_read_equals_what_the_watch_prints(
    fresh_dynamodb_local: DynamoDBLocal, spark: Any
) -> None:
    server = fresh_dynamodb_local
    arn = server.create_table("shop")
    write(server, "shop", 0, 30)
    server.rollover()
    write(server, "shop", 30, 30)
    lines = printed(server, arn)
    options = {"stream": arn, "endpointUrl": server.endpoint_url, "region": "us-east-1"}

    frame = spark.read.format("dynamodb_streams").options(imageFormat="dynamodb-json", **options)
    rows = frame.load().collect()

    by_number = {line["dynamodb"]["SequenceNumber"]: line for line in lines}
    assert {row.sequence_number for row in rows} == by_number.keys()
    assert len(rows) == len(lines)
    for row in rows:
        line = by_number[row.sequence_number]
        assert row.event_id == line["eventID"]
        assert row.event_name == line["eventName"]
        for image, name in ((row.new_image, "NewImage"), (row.old_image, "OldImage")):
            assert (json.loads(image) if image else None) == line["dynamodb"].get(name)
