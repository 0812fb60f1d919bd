"""An undo on Amazon's own DynamoDB Local: its conditions hold for all types and sizes."""

import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.ledger.ledger import an_item
from tests.support.dynamodb_local import DynamoDBLocal
from tests.support.hand_clock import HandClock
from watcher.aws.client import StreamsClient
from watcher.aws.config import AwsConfig
from watcher.aws.tables import TablesClient
from watcher.records.record import native_item, wire_item
from watcher.time_machine.sources import Sources, StreamSource
from watcher.time_machine.undo import open_plan, plan_undo
from watcher.time_machine.undo_plan import ChangeFilter
from watcher.time_machine.write_back import Outcome

BAD = '{"dynamodb": {"NewImage": {"by": {"S": ["deploy"]}}}}'


class Orders:
    """A table of items of all types, read on a clock that does not wait."""

    def __init__(self, server: DynamoDBLocal) -> None:
        self.server = server
        self.arn = server.create_table("orders")
        # The minute in which a change is stamped begins after the stream did.
        server.dilate_time(1)
        self.client = server.client()
        self.connection = AwsConfig(region="us-east-1", endpoint_url=server.endpoint_url)

    def put(self, number: int, item: dict[str, Any]) -> None:
        key = {"PK": {"S": f"item-{number}"}, "SK": {"S": "é"}}
        image = wire_item(_json({**key, **item}))
        self.client.put_item(TableName="orders", Item=image)

    def sources(self) -> Sources:
        stream = StreamSource(
            self.arn,
            StreamsClient(self.connection),
            TablesClient(self.connection),
            clock=HandClock(),
        )
        return Sources([], stream, strict=True)

    def items(self, table: str = "orders") -> dict[str, Any]:
        pages = TablesClient(self.connection).scan(table, 0, 1)
        found = [native_item(raw) for page in pages for raw in page]
        return {item["PK"]: item for item in found}


def _json(item: dict[str, Any]) -> bytes:
    return json.dumps(item).encode()


@pytest.fixture
def orders(fresh_dynamodb_local: DynamoDBLocal, monkeypatch: pytest.MonkeyPatch) -> Orders:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "local")
    return Orders(fresh_dynamodb_local)


def test_items_of_all_types_go_back_and_forth(orders: Orders, tmp_path: Path) -> None:
    chance = random.Random(1)
    for number in range(120):
        orders.put(number, an_item(chance))
    orders.put(200, {f"a{number}": {"N": str(number)} for number in range(400)})
    orders.put(201, {f"a{number}": {"S": "é" * 60_000} for number in range(3)})
    before = orders.items()
    deploy = {"by": {"S": "deploy"}}
    for number in (*range(0, 120, 2), 200, 201, *range(300, 310)):
        orders.put(number, {**an_item(chance), **deploy})
    orders.server.rollover()
    for number in (0, 2):
        orders.put(number, an_item(chance))
    after = orders.items()

    log = tmp_path / "undo.jsonl"
    choice = ChangeFilter(datetime.now(UTC) - timedelta(minutes=2), filters=[BAD])
    plan = plan_undo(orders.sources(), choice, log)
    assert len(plan.conflicts) == 2
    done = [outcome for _, outcome in plan.apply(write_limit=1e9)]
    assert done.count(Outcome.RESTORED) == len(plan.steps) - 2
    expected = before | {key: after[key] for key in ("item-0", "item-2")}
    assert orders.items() == expected

    way_back = open_plan(log, orders.connection).revert()
    back = [outcome for _, outcome in way_back.apply(write_limit=1e9)]
    assert back == [Outcome.RESTORED] * (len(plan.steps) - 2)
    assert orders.items() == after
