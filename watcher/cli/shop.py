"""The demo's shop: an embedded DynamoDB, two tables with streams, a past, and customers.

Its streams have shards that split and rotate, as a busy table's do; moto's own never end.
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
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TypeAlias

import boto3
from moto.server import ThreadedMotoServer

from watcher.aws.config import Client
from watcher.cli.shop_streams import ShopClock, ShopShards, set_up, shards_of

Write: TypeAlias = Callable[[], object]

REGION = "us-east-1"
# Seconds from one customer to the next, once the demo has seen its changes.
_PACE = 1.0
_ROTATIONS = 300
# Shards split and rotate before the eyes of who watches.
_SPLIT_AFTER, _ROTATED_AFTER = 20, 45


def main(changes: int, seconds: float) -> None:
    """Starts the service, prints its address, makes the changes in the given time, and goes on."""
    seen = threading.Event()
    threading.Thread(target=_heed_the_demo, args=(seen,), daemon=True).start()
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    set_up()
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    dynamodb = boto3.client("dynamodb", region_name=REGION, endpoint_url=endpoint)
    stream = live_the_past(dynamodb)
    opened = datetime.now(UTC).isoformat()
    print(json.dumps({"endpoint": endpoint, "opened": opened}), flush=True)
    trade(dynamodb, shards_of(stream), changes, seconds / changes, seen)


def trade(
    dynamodb: Client, shards: ShopShards, changes: int, pace: float, seen: threading.Event
) -> None:
    """Writes to two tables, quickly at first; `changes` counts the changes of orders.

    Waits until these are `seen` before it writes more, so that a slow machine shows them first.
    """
    chance = random.Random(2026)
    buying, joining = orders(dynamodb, chance), customers(dynamodb, random.Random(11))
    for number in itertools.count(1):
        next(buying)()
        if number % 5 == 0:
            next(joining)()
        if number == _SPLIT_AFTER:
            shards.split()
        elif number == _ROTATED_AFTER or number % _ROTATIONS == 0:
            shards.rotate()
        time.sleep(pace if number < changes else _PACE)
        if number >= changes:
            seen.wait()


def live_the_past(dynamodb: Client) -> str:
    """Writes three hours of history: thirty orders, a faulty release that sets twenty totals to 0.

    Returns the orders' stream.
    """
    ShopClock.back = timedelta(hours=3)
    stream = _create(dynamodb, "orders", "PK", "SK")
    _create(dynamodb, "customers", "PK")
    for number in range(10):
        _put(dynamodb, "customers", PK=f"user-{number}", city="London", points=10 * number)
    for number in range(30):
        _price(dynamodb, number, str(100 + 10 * number))
        ShopClock.back -= timedelta(minutes=4)
    # In the twenty minutes that the README takes back, for the next nineteen minutes.
    ShopClock.back = timedelta(minutes=21)
    for number in range(20):
        _price(dynamodb, number, "0", by={"S": "release-112"})
    ShopClock.back = timedelta(minutes=15)
    _price(dynamodb, 3, "33")
    ShopClock.back = timedelta(minutes=10)
    _put(dynamodb, "orders", PK="user-2", SK="order-900", total=250)
    ShopClock.back = timedelta()
    return stream


def _price(dynamodb: Client, number: int, total: str, **more: dict[str, str]) -> None:
    item = {**_key((f"user-{number}", number)), "total": {"N": total}, **more}
    dynamodb.put_item(TableName="orders", Item=item)


def _put(dynamodb: Client, table: str, **item: str | int) -> None:
    kinds = {str: "S", int: "N"}
    wire = {name: {kinds[type(value)]: str(value)} for name, value in item.items()}
    dynamodb.put_item(TableName=table, Item=wire)


def _create(dynamodb: Client, name: str, *keys: str) -> str:
    answer = dynamodb.create_table(
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
    arn: str = answer["TableDescription"]["LatestStreamArn"]
    return arn


def orders(dynamodb: Client, chance: random.Random) -> Iterator[Write]:
    """Yields forever, each time after one change: orders arrive, progress and get deleted."""
    standing: list[tuple[str, int]] = []
    for number in itertools.count(1):
        if not standing or chance.random() < 0.4:
            order = (chance.choice(("ada", "grace", "edsger", "barbara")), 1000 + number)
            standing.append(order)
            total = {"N": f"{5 + 97 * number % 110}.50"}
            item = {**_key(order), "status": {"S": "new"}, "total": total}
            yield partial(dynamodb.put_item, TableName="orders", Item=item)
        elif chance.random() < 0.75:
            yield partial(
                dynamodb.update_item,
                TableName="orders",
                Key=_key(chance.choice(standing)),
                UpdateExpression="SET #s = :s",
                ExpressionAttributeNames={"#s": "status"},
                ExpressionAttributeValues={":s": {"S": f"step {number}"}},
            )
        else:
            order = standing.pop(chance.randrange(len(standing)))
            yield partial(dynamodb.delete_item, TableName="orders", Key=_key(order))


def customers(dynamodb: Client, chance: random.Random) -> Iterator[Write]:
    """Yields forever, each time after a customer got points."""
    while True:
        yield partial(
            dynamodb.update_item,
            TableName="customers",
            Key={"PK": {"S": f"user-{chance.randrange(10)}"}},
            UpdateExpression="ADD points :p",
            ExpressionAttributeValues={":p": {"N": "5"}},
        )


def _key(order: tuple[str, int]) -> dict[str, dict[str, str]]:
    return {"PK": {"S": order[0]}, "SK": {"S": f"order-{order[1]}"}}


def _heed_the_demo(seen: threading.Event) -> None:
    """Reads a line once the demo has shown the changes; stdin closes when the demo ends."""
    if sys.stdin.buffer.readline():
        seen.set()
    sys.stdin.buffer.read()
    os._exit(0)


# The streams


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
