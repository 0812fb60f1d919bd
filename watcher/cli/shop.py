"""The demo's shop: an embedded DynamoDB, a table with a stream, and customers."""

from __future__ import annotations

import json
import logging
import os
import random
import sys
import threading
import time
from typing import Any

import boto3
from moto.server import ThreadedMotoServer

TABLE = "shop-orders"


def main(changes: int, seconds: float) -> None:
    """Start the service, say where it is, and make so many changes in so many seconds."""
    threading.Thread(target=_end_with_the_demo, daemon=True).start()
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    dynamodb = boto3.client("dynamodb", region_name="us-east-1", endpoint_url=endpoint)
    stream = open_shop(dynamodb)
    print(json.dumps({"endpoint": endpoint, "stream": stream}), flush=True)
    for write in business(dynamodb, random.Random(2026), changes):
        write()
        time.sleep(seconds / changes)
    threading.Event().wait()


def open_shop(dynamodb: Any) -> str:
    """Create the table; its stream's ARN."""
    answer = dynamodb.create_table(
        TableName=TABLE,
        KeySchema=[
            {"AttributeName": "PK", "KeyType": "HASH"},
            {"AttributeName": "SK", "KeyType": "RANGE"},
        ],
        AttributeDefinitions=[
            {"AttributeName": "PK", "AttributeType": "S"},
            {"AttributeName": "SK", "AttributeType": "S"},
        ],
        BillingMode="PAY_PER_REQUEST",
        StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
    )
    arn: str = answer["TableDescription"]["LatestStreamArn"]
    return arn


def business(dynamodb: Any, chance: random.Random, changes: int) -> Any:
    """So many writes, each a change: orders come in, move on, and are dropped."""
    orders: list[tuple[str, int]] = []
    for number in range(1, changes + 1):
        if not orders or chance.random() < 0.4:
            order = (chance.choice(("ada", "grace", "edsger", "barbara")), 1000 + number)
            orders.append(order)
            item = {**_key(order), "status": {"S": "new"}, "total": {"N": f"{number * 4}.50"}}
            yield lambda item=item: dynamodb.put_item(TableName=TABLE, Item=item)
        elif chance.random() < 0.75:
            order = chance.choice(orders)
            yield lambda order=order, number=number: dynamodb.update_item(
                TableName=TABLE,
                Key=_key(order),
                UpdateExpression="SET #s = :s",
                ExpressionAttributeNames={"#s": "status"},
                ExpressionAttributeValues={":s": {"S": f"step {number}"}},
            )
        else:
            order = orders.pop(chance.randrange(len(orders)))
            yield lambda order=order: dynamodb.delete_item(TableName=TABLE, Key=_key(order))


def _key(order: tuple[str, int]) -> dict[str, dict[str, str]]:
    return {"PK": {"S": order[0]}, "SK": {"S": f"order-{order[1]}"}}


def _end_with_the_demo() -> None:
    """Our standard input closes when the demo ends, however it ends."""
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
