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


def pull(stream: Any, count: int) -> list[str]:
    """The numbers of the next records, of ours or of theirs."""
    pulled: list[str] = []
    for _ in range(3000):
        if len(pulled) == count:
            break
        if (record := next(stream)) is not None:
            ours = isinstance(stream, Stream)
            pulled.append(record.key["SK"] if ours else record["new"].SK)
    return pulled


@pytest.mark.parametrize("taken", [0, 3, 10, 12])
@pytest.mark.parametrize("begun", ["ours", "theirs"])
def test_a_token_of_one_goes_on_in_the_other(server: DynamoDBLocal, taken: int, begun: str) -> None:
    put(server, 0, 10)
    server.rollover()
    put(server, 10, 10)
    engine, model = engine_and_model(server)

    def ours(start: Any) -> Any:
        return Stream("orders", start, region="us-east-1", endpoint_url=server.endpoint_url)

    def theirs(start: Any) -> Any:
        return engine.stream(model, start)

    first, other = (ours, theirs) if begun == "ours" else (theirs, ours)
    stream, numbers = first("trim_horizon"), [f"{number:03}" for number in range(20)]
    assert pull(stream, taken) == numbers[:taken]
    text = json.dumps(stream.token)
    token = json.loads(text) if begun == "ours" else text
    assert pull(other(token), 20 - taken) == numbers[taken:]
