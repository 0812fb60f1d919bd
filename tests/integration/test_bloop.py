"""Tokens that bloop 3.1.1 wrote load here, and ours load there."""

import json
from typing import Any

import pytest

from tests.support.dynamodb_local import DynamoDBLocal
from watcher import Stream

pytestmark = pytest.mark.proof

bloop = pytest.importorskip("bloop", reason="bloop is not installed: scripts/test does it")


@pytest.fixture
def server(fresh_dynamodb_local: DynamoDBLocal) -> DynamoDBLocal:
    fresh_dynamodb_local.create_table("orders")
    return fresh_dynamodb_local


def engine_and_model(server: DynamoDBLocal) -> tuple[Any, Any]:
    class Order(bloop.BaseModel):  # type: ignore[misc, name-defined]
        class Meta:
            table_name = "orders"
            stream = {"include": {"new", "old"}}  # noqa: RUF012

        PK = bloop.Column(bloop.String, hash_key=True)
        SK = bloop.Column(bloop.String, range_key=True)

    engine = bloop.Engine(
        dynamodb=server.client("dynamodb"), dynamodbstreams=server.client("dynamodbstreams")
    )
    engine.bind(Order, skip_table_setup=True)
    arn = server.client().describe_table(TableName="orders")["Table"]["LatestStreamArn"]
    Order.Meta.stream["arn"] = arn
    return engine, Order


def put(server: DynamoDBLocal, first: int, count: int) -> None:
    for number in range(first, first + count):
        item = {"PK": {"S": "k"}, "SK": {"S": f"{number:03}"}}
        server.client().put_item(TableName="orders", Item=item)


def ours(server: DynamoDBLocal, start: Any) -> Stream:
    return Stream("orders", start, region="us-east-1", endpoint_url=server.endpoint_url)


def pull(stream: Any, count: int, key: Any) -> list[str]:
    pulled: list[str] = []
    for _ in range(3000):
        if len(pulled) == count:
            break
        if (record := next(stream)) is not None:
            pulled.append(key(record))
    return pulled


def our_key(record: Any) -> str:
    key: str = record.key["SK"]
    return key


def their_key(record: Any) -> str:
    key: str = record["new"].SK
    return key


def numbers(first: int, count: int) -> list[str]:
    return [f"{number:03}" for number in range(first, first + count)]


@pytest.mark.parametrize("taken", [0, 3, 12])
def test_a_token_of_bloops_goes_on_here(server: DynamoDBLocal, taken: int) -> None:
    put(server, 0, 10)
    server.rollover()
    put(server, 10, 10)
    engine, model = engine_and_model(server)
    theirs = engine.stream(model, "trim_horizon")
    assert pull(theirs, taken, their_key) == numbers(0, taken)
    token = json.dumps(theirs.token)
    assert pull(ours(server, token), 20 - taken, our_key) == numbers(taken, 20 - taken)


@pytest.mark.parametrize("taken", [0, 3, 10, 12])
def test_a_token_of_ours_goes_on_in_bloop(server: DynamoDBLocal, taken: int) -> None:
    put(server, 0, 10)
    server.rollover()
    put(server, 10, 10)
    stream = ours(server, "trim_horizon")
    assert pull(stream, taken, our_key) == numbers(0, taken)
    engine, model = engine_and_model(server)
    theirs = engine.stream(model, json.loads(json.dumps(stream.token)))
    assert pull(theirs, 20 - taken, their_key) == numbers(taken, 20 - taken)
