"""The whole program against the real DynamoDB Local: rotations, ageing, all types."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.dynamodb_local import DynamoDBLocal
from tests.support.program import Program, Ran, run
from watcher import watch

ITEM: dict[str, Any] = {
    "S": {"S": "Grüße \x1b[31m"},
    "N": {"N": "-12345678901234567890123456789012345678"},
    "B": {"B": b"\x00\xff"},
    "SS": {"SS": ["a", "b"]},
    "NS": {"NS": ["1", "2"]},
    "BS": {"BS": [b"\x00", b"\x01"]},
    "M": {"M": {"deep": {"M": {"list": {"L": [{"NULL": True}, {"BOOL": True}, {"B": b"\x02"}]}}}}},
    "L": {"L": [{"S": "x"}, {"N": "1"}]},
    "NULL": {"NULL": True},
    "BOOL": {"BOOL": False},
}


def put(server: DynamoDBLocal, table: str, first: int, count: int) -> None:
    client = server.client()
    for number in range(first, first + count):
        item = {"PK": {"S": f"k{number % 5}"}, "SK": {"S": f"{number:05}"}}
        client.put_item(TableName=table, Item=item)


def sort_keys(program: Program | Ran) -> list[str]:
    return [json.loads(line)["dynamodb"]["Keys"]["SK"]["S"] for line in program.out]


def expected(first: int, count: int) -> list[str]:
    return [f"{number:05}" for number in range(first, first + count)]


def test_three_generations_of_shards_arrive_complete_and_in_order_while_watching(
    fresh_dynamodb_local: DynamoDBLocal,
) -> None:
    server = fresh_dynamodb_local
    server.create_table("orders")
    with Program("orders", "--print-json", env=server.environment) as program:
        program.wait_for_status("Watching")
        for generation in range(4):
            put(server, "orders", generation * 100, 100)
            server.rollover()
        put(server, "orders", 400, 100)
        program.wait_for_lines(500)
        assert program.end() == 0
    assert sort_keys(program) == expected(0, 500)


def test_a_checkpoint_older_than_retention_tells_the_loss_and_goes_on(
    fresh_dynamodb_local: DynamoDBLocal, tmp_path: Path
) -> None:
    server = fresh_dynamodb_local
    server.create_table("orders")
    put(server, "orders", 0, 10)
    arguments = ["orders", "--print-json", "--checkpoint", str(tmp_path / "state.json")]
    start = ["--from", "trim-horizon", "--max-records", "5"]
    assert sort_keys(run(*arguments, *start, env=server.environment)) == expected(0, 5)
    server.dilate_time(25)
    put(server, "orders", 10, 5)
    token = (tmp_path / "state.json").read_bytes()
    program = run(*arguments, "--no-follow", env=server.environment)
    assert sort_keys(program) == expected(10, 5)
    assert any("DATA LOSS" in line for line in program.err)
    assert program.status == 0
    (tmp_path / "state.json").write_bytes(token)
    strict = run(*arguments, "--no-follow", "--fail-on-data-loss", env=server.environment)
    assert strict.status == 1
    assert "DATA LOSS" in strict.err[-1]


def test_every_attribute_type_comes_out_as_boto3_gives_it(
    dynamodb_local: DynamoDBLocal, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in dynamodb_local.environment.items():
        monkeypatch.setenv(name, value)
    arn = dynamodb_local.create_table("types", sort_key=False)
    item = {"PK": {"S": "x"}, **ITEM}
    dynamodb_local.client().put_item(TableName="types", Item=item)
    seen: list[Any] = []
    watch(arn, [seen.append], start="trim_horizon", follow=False)
    (record,) = seen
    image = record["dynamodb"]["NewImage"]
    assert {
        name: sorted(v) if isinstance(v, list) and name != "L" else v
        for (name, (v,)) in ((name, tuple(value.values())) for name, value in image.items())
    } == {name: next(iter(value.values())) for name, value in item.items()}
    streams = dynamodb_local.client("dynamodbstreams")
    shard = streams.describe_stream(StreamArn=arn)["StreamDescription"]["Shards"][0]["ShardId"]
    iterator = streams.get_shard_iterator(
        StreamArn=arn, ShardId=shard, ShardIteratorType="TRIM_HORIZON"
    )["ShardIterator"]
    assert record == streams.get_records(ShardIterator=iterator)["Records"][0]


def test_a_disabled_stream_is_readable_and_the_reenabled_one_is_the_tables(
    fresh_dynamodb_local: DynamoDBLocal,
) -> None:
    server = fresh_dynamodb_local
    old = server.create_table("orders")
    put(server, "orders", 0, 5)
    update = server.client().update_table
    update(TableName="orders", StreamSpecification={"StreamEnabled": False})
    start = ["--from", "trim-horizon", "--print-json"]
    program = run(old, *start, env=server.environment)
    assert sort_keys(program) == expected(0, 5)
    assert program.status == 0
    update(
        TableName="orders",
        StreamSpecification={"StreamEnabled": True, "StreamViewType": "KEYS_ONLY"},
    )
    put(server, "orders", 5, 5)
    start.append("--no-follow")
    assert sort_keys(run("orders", *start, env=server.environment)) == expected(5, 5)
    assert sort_keys(run(old, *start, env=server.environment)) == expected(0, 5)
