"""Tokens that bloop 3.1.1 wrote load here, and ours load there."""

import json
from typing import Any

import pytest

from tests.support.dynamodb_local import DynamoDBLocal
from watcher import Record, Stream

pytestmark = pytest.mark.proof


def theirs(server: DynamoDBLocal, token: Any) -> Any:
    bloop = pytest.importorskip("bloop", reason="scripts/proofs installs it")

    class Order(bloop.BaseModel):  # type: ignore[misc, name-defined]
        class Meta:
            table_name = "orders"
            stream = {"include": {"new"}}  # noqa: RUF012

        PK = bloop.Column(bloop.String, hash_key=True)
        SK = bloop.Column(bloop.String, range_key=True)

    calls = {name: server.client(name) for name in ("dynamodb", "dynamodbstreams")}
    engine = bloop.Engine(**calls)
    engine.bind(Order, skip_table_setup=True)
    described = server.client().describe_table(TableName="orders")
    Order.Meta.stream["arn"] = described["Table"]["LatestStreamArn"]
    return engine.stream(Order, token)


def ours(server: DynamoDBLocal, token: Any) -> Any:
    return Stream("orders", token, region="us-east-1", endpoint_url=server.endpoint_url)


def pull(stream: Any, count: int) -> list[str]:
    pulled: list[str] = []
    while len(pulled) < count:
        if (record := next(stream)) is not None:
            is_ours = isinstance(record, Record)
            pulled.append(record.key["SK"] if is_ours else record["new"].SK)
    return pulled


@pytest.mark.parametrize("taken", [0, 3, 10, 12])
@pytest.mark.parametrize(("first", "then"), [(theirs, ours), (ours, theirs)])
def test_a_token_goes_on_in_the_other(
    fresh_dynamodb_local: DynamoDBLocal, first: Any, then: Any, taken: int
) -> None:
    fresh_dynamodb_local.create_table("orders")
    for number in range(20):
        item = {"PK": {"S": "k"}, "SK": {"S": f"{number:03}"}}
        fresh_dynamodb_local.client().put_item(TableName="orders", Item=item)
        if number == 9:
            fresh_dynamodb_local.rollover()
    stream = first(fresh_dynamodb_local, "trim_horizon")
    keys = pull(stream, taken)
    token = json.loads(json.dumps(stream.token))
    keys += pull(then(fresh_dynamodb_local, token), 20 - taken)
    assert keys == [f"{number:03}" for number in range(20)]
