"""The whole program against the real DynamoDB Local: rotations, ageing, all types."""

import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.support.dynamodb_local import DynamoDBLocal
from tests.support.program import Program, Ran, run
from watcher import Stream, watch

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
    for number in range(first, first + count):
        item = {"PK": {"S": f"k{number % 5}"}, "SK": {"S": f"{number:05}"}}
        server.client().put_item(TableName=table, Item=item)


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


@pytest.mark.proof
def test_all_generations_are_read_from_the_trim_horizon(
    fresh_dynamodb_local: DynamoDBLocal,
) -> None:
    server = fresh_dynamodb_local
    server.create_table("orders")
    for generation in range(4):
        put(server, "orders", generation * 50, 50)
        server.rollover()
    program = run(
        *("orders", "--from", "trim-horizon", "--no-follow", "--print-json"),
        env=server.environment,
    )
    assert program.status == 0
    assert sort_keys(program) == expected(0, 200)


def test_iterators_that_expired_while_watching_lose_nothing(
    fresh_dynamodb_local: DynamoDBLocal,
) -> None:
    server = fresh_dynamodb_local
    server.create_table("orders")
    with Program("orders", "--print-json", env=server.environment) as program:
        program.wait_for_status("Watching")
        put(server, "orders", 0, 10)
        program.wait_for_lines(10)
        server.dilate_time(1)
        put(server, "orders", 10, 10)
        program.wait_for_lines(20)
        program.end()
    assert sort_keys(program) == expected(0, 20)


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


def test_shards_out_of_retention_before_the_start_are_no_loss(
    fresh_dynamodb_local: DynamoDBLocal,
) -> None:
    server = fresh_dynamodb_local
    server.create_table("orders")
    put(server, "orders", 0, 5)
    server.dilate_time(25)
    put(server, "orders", 5, 5)
    program = run(
        *("orders", "--from", "trim-horizon", "--no-follow", "--print-json", "--fail-on-data-loss"),
        env=server.environment,
    )
    assert sort_keys(program) == expected(5, 5)
    assert program.status == 0


@pytest.mark.proof
@pytest.mark.parametrize(
    ("view_type", "images"),
    [
        ("NEW_AND_OLD_IMAGES", {"NewImage", "OldImage"}),
        ("NEW_IMAGE", {"NewImage"}),
        ("OLD_IMAGE", {"OldImage"}),
        ("KEYS_ONLY", set()),
    ],
)
def test_every_view_type_through_every_built_in_handler(
    dynamodb_local: DynamoDBLocal, view_type: str, images: set[str]
) -> None:
    table = f"view-{view_type.lower().replace('_', '-')}"
    dynamodb_local.create_table(table, view_type=view_type)
    key = {"PK": {"S": "p\x1b"}, "SK": {"S": "s"}}
    client = dynamodb_local.client()
    client.put_item(TableName=table, Item={**key, "v": {"N": "1"}})
    client.put_item(TableName=table, Item={**key, "v": {"N": "2"}})
    client.delete_item(TableName=table, Key=key)
    start = [table, "--from", "trim-horizon", "--no-follow"]
    as_json, as_summary, as_records = (
        run(*start, *options, env=dynamodb_local.environment) for options in (["-pj"], ["-ps"], [])
    )
    records = [json.loads(line) for line in as_json.out]
    assert [record["eventName"] for record in records] == ["INSERT", "MODIFY", "REMOVE"]
    assert {"NewImage", "OldImage"} & set(records[1]["dynamodb"]) == images
    summary = as_summary.out
    assert len(summary) == 3
    line = r"\[\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d\] - MODIFY - PK=p\\x1b, SK=s"
    assert re.fullmatch(line, summary[1])
    full = "\n".join(as_records.out)
    assert full.count("  new ") == 2 * ("NewImage" in images)
    assert full.count("  old ") == 2 * ("OldImage" in images)
    assert "\x1b" not in full


def test_every_attribute_type_comes_out_as_boto3_gives_it(dynamodb_local: DynamoDBLocal) -> None:
    arn = dynamodb_local.create_table("types", sort_key=False)
    item = {"PK": {"S": "x"}, **ITEM}
    dynamodb_local.client().put_item(TableName="types", Item=item)
    with dynamodb_local_account(dynamodb_local):
        seen: list[Any] = []
        watch(
            arn,
            [seen.append],
            start="trim_horizon",
            follow=False,
            endpoint_url=dynamodb_local.endpoint_url,
        )
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


def dynamodb_local_account(server: DynamoDBLocal) -> Any:
    patch = pytest.MonkeyPatch.context()
    entered = patch.__enter__()
    for name, value in server.environment.items():
        entered.setenv(name, value)

    class Leave:
        def __enter__(self) -> None: ...

        def __exit__(self, *error: object) -> None:
            patch.__exit__(None, None, None)

    return Leave()


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


def test_streams_and_shards_are_shown(fresh_dynamodb_local: DynamoDBLocal) -> None:
    server = fresh_dynamodb_local
    arn = server.create_table("orders")
    server.create_table("other")
    put(server, "orders", 0, 1)
    server.rollover()
    listed = run("streams", env=server.environment).out
    assert {line.split("\t")[0] for line in listed} == {"orders", "other"}
    (only,) = run("streams", "--table", "orders", env=server.environment).out
    assert only.split("\t")[2:5] == [arn, "NEW_AND_OLD_IMAGES", "1 open shard"]
    assert only.endswith(" ago")
    top, parent, child = run("shards", "orders", env=server.environment).out
    assert arn in top
    assert re.match(r"└── shardId-\S+  closed  \d+\.\.\d+  opened \d+ .* ago", parent)
    assert re.match(r"    └── shardId-\S+  open  \d+\.\.  opened \d+ .* ago", child)


def test_a_stream_pulled_over_rotations_and_ageing(fresh_dynamodb_local: DynamoDBLocal) -> None:
    server = fresh_dynamodb_local
    arn = server.create_table("orders")
    stream = Stream(arn, "trim_horizon", region="us-east-1", endpoint_url=server.endpoint_url)
    pulled: list[str] = []
    for generation in range(3):
        put(server, "orders", generation * 20, 20)
        server.rollover()
        server.dilate_time(1)
        while len(pulled) < (generation + 1) * 20:
            if (record := next(stream)) is not None:
                pulled.append(record.key["SK"])
    assert pulled == expected(0, 60)
    assert not stream.losses


def test_ctrl_c_is_a_regular_end(dynamodb_local: DynamoDBLocal) -> None:
    dynamodb_local.create_table("interrupted")
    with Program("interrupted", env=dynamodb_local.environment) as program:
        program.wait_for_status("Watching")
        assert program.end(signal.SIGINT) == 0
    assert program.err[-1] == "Done: 0 records, 1 shard"
