"""The demo's shop: an embedded DynamoDB, two tables with streams, a past, and customers.

A program of its own, not run as `__main__`: moto names a backend by its class's module.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import random
import sys
import threading
import time
from bisect import bisect_left
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
from moto.core.responses import ActionResult
from moto.dynamodb.models import table
from moto.dynamodbstreams import urls
from moto.dynamodbstreams.responses import DynamoDBStreamsHandler
from moto.server import ThreadedMotoServer

from watcher.aws.config import Client

REGION = "us-east-1"
# Seconds from one customer to the next, once the demo has seen its changes.
_PACE = 1.0


class ShopClock:
    """The shop's clock: it runs in the past until the shop opens."""

    back = timedelta()

    @classmethod
    def now(cls) -> datetime:
        """Returns UTC without a zone, as moto does."""
        return (datetime.now(UTC) - cls.back).replace(tzinfo=None)


class ShopShard(table.StreamShard):
    """A table's only shard, as moto has it, with an id that says when it was opened."""

    def __init__(self, account_id: str, table: table.Table) -> None:
        super().__init__(account_id, table)
        opened = int(ShopClock.now().replace(tzinfo=UTC).timestamp() * 1000)
        self.id = f"shardId-{opened:020d}-5ee6d958"


class ShopStreams(DynamoDBStreamsHandler):
    """Answers as moto does, and begins at a time, too, which moto's streams can't."""

    def get_shard_iterator(self) -> ActionResult:
        """Returns an iterator for any of the five iterator types."""
        if self._get_param("ShardIteratorType") != "AT_TIMESTAMP":
            return super().get_shard_iterator()
        arn, shard_id = self._get_param("StreamArn"), self._get_param("ShardId")
        shard: Any = self.backend._get_table_from_arn(arn).stream_shard
        start = datetime.fromtimestamp(self._get_float_param("Timestamp"), UTC).replace(tzinfo=None)
        times = [each.record["dynamodb"]["ApproximateCreationDateTime"] for each in shard.items]
        number: Any = shard.starting_sequence_number + bisect_left(times, start)
        found = self.backend.get_shard_iterator(arn, shard_id, "AT_SEQUENCE_NUMBER", number)
        return ActionResult({"ShardIterator": found.arn})


def main(changes: int, seconds: float) -> None:
    """Starts the service, prints its address, makes the changes in the given time, and goes on."""
    seen = threading.Event()
    threading.Thread(target=_heed_the_demo, args=(seen,), daemon=True).start()
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    module: Any = table
    module.StreamShard, module.utcnow = ShopShard, ShopClock.now
    urls.url_paths["{0}/$"] = ShopStreams.dispatch
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    dynamodb = boto3.client("dynamodb", region_name=REGION, endpoint_url=endpoint)
    live_the_past(dynamodb)
    opened = datetime.now(UTC).isoformat()
    print(json.dumps({"endpoint": endpoint, "opened": opened}), flush=True)
    buying, joining = orders(dynamodb, random.Random(2026)), customers(dynamodb, random.Random(11))
    for number in itertools.count(1):
        next(buying)
        if number % 5 == 0:
            next(joining)
        time.sleep(seconds / changes if number < changes else _PACE)
        if number >= changes:
            seen.wait()  # so that a slow machine shows these changes first


def live_the_past(dynamodb: Client) -> None:
    """Writes three hours of history: thirty orders, and a release that sets twenty totals to 0."""
    ShopClock.back = timedelta(hours=3)
    for name, *keys in (("orders", "PK", "SK"), ("customers", "PK")):
        dynamodb.create_table(
            TableName=name,
            KeySchema=[
                {"AttributeName": key, "KeyType": kind}
                for key, kind in zip(keys, ("HASH", "RANGE"), strict=False)
            ],
            AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key in keys],
            BillingMode="PAY_PER_REQUEST",
            StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
            Tags=[{"Key": "env", "Value": "prod"}],
        )
    for number in range(10):
        item = {"PK": {"S": f"user-{number}"}, "city": {"S": "London"}, "points": _n(10 * number)}
        dynamodb.put_item(TableName="customers", Item=item)
    for number in range(30):
        _order(dynamodb, f"user-{number}", number, 100 + 10 * number)
        ShopClock.back -= timedelta(minutes=4)
    # In the twenty minutes that the README takes back, for the next nineteen minutes.
    ShopClock.back = timedelta(minutes=21)
    for number in range(20):
        _order(dynamodb, f"user-{number}", number, 0, by={"S": "release-112"})
    ShopClock.back = timedelta(minutes=15)
    _order(dynamodb, "user-3", 3, 33)
    ShopClock.back = timedelta(minutes=10)
    _order(dynamodb, "user-2", 900, 250)
    ShopClock.back = timedelta()


def _order(dynamodb: Client, user: str, number: int, total: float, **more: dict[str, str]) -> None:
    item = {**_key((user, number)), "total": _n(total), **more}
    dynamodb.put_item(TableName="orders", Item=item)


def orders(dynamodb: Client, chance: random.Random) -> Iterator[None]:
    """Yields forever, each time after one change: orders arrive, progress and get deleted."""
    standing: list[tuple[str, int]] = []
    for number in itertools.count(1):
        if not standing or chance.random() < 0.4:
            order = (chance.choice(("ada", "grace", "edsger", "barbara")), 1000 + number)
            standing.append(order)
            total = {"N": f"{5 + 97 * number % 110}.50"}
            item = {**_key(order), "status": {"S": "new"}, "total": total}
            dynamodb.put_item(TableName="orders", Item=item)
        elif chance.random() < 0.75:
            dynamodb.update_item(
                TableName="orders",
                Key=_key(chance.choice(standing)),
                UpdateExpression="SET #s = :s",
                ExpressionAttributeNames={"#s": "status"},
                ExpressionAttributeValues={":s": {"S": f"step {number}"}},
            )
        else:
            order = standing.pop(chance.randrange(len(standing)))
            dynamodb.delete_item(TableName="orders", Key=_key(order))
        yield


def customers(dynamodb: Client, chance: random.Random) -> Iterator[None]:
    """Yields forever, each time after a customer got points."""
    while True:
        dynamodb.update_item(
            TableName="customers",
            Key={"PK": {"S": f"user-{chance.randrange(10)}"}},
            UpdateExpression="ADD points :p",
            ExpressionAttributeValues={":p": _n(5)},
        )
        yield


def _key(order: tuple[str, int]) -> dict[str, dict[str, str]]:
    return {"PK": {"S": order[0]}, "SK": {"S": f"order-{order[1]}"}}


def _n(number: float) -> dict[str, str]:
    return {"N": str(number)}


def _heed_the_demo(seen: threading.Event) -> None:
    """Reads a line once the demo has shown the changes; stdin closes when the demo ends."""
    if sys.stdin.buffer.readline():
        seen.set()
    sys.stdin.buffer.read()
    os._exit(0)
