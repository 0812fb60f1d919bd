"""The demo's shop: an embedded DynamoDB whose shards split and rotate, and what writes to it."""

from __future__ import annotations

import itertools
import json
import logging
import os
import random
import sys
import threading
import time
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypeAlias

import boto3
from moto.core.responses import ActionResult
from moto.dynamodb.exceptions import ResourceNotFoundException
from moto.dynamodb.models import dynamodb_backends, table
from moto.dynamodb.models.dynamo_type import Item
from moto.dynamodb.models.table import Table
from moto.dynamodbstreams import urls
from moto.dynamodbstreams.responses import DynamoDBStreamsHandler
from moto.server import ThreadedMotoServer

from watcher.aws.config import Client

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
    trade(dynamodb, lineage(stream), changes, seconds / changes, seen)


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


# The hashes that a table's keys have.
_HASHES = 1 << 16


class ShopClock:
    """The shop's clock: it runs in the past until the shop opens."""

    back = timedelta()

    @classmethod
    def now(cls) -> datetime:
        """Returns UTC without a zone, as moto does."""
        return (datetime.now(UTC) - cls.back).replace(tzinfo=None)


@dataclass
class _ShopShard:
    parent: str | None
    hashes: range
    first: int
    last: int | None = None
    """The shard's last sequence number; None while it is open."""
    records: list[dict[str, Any]] = field(default_factory=list)
    id: str = field(init=False)

    def __post_init__(self) -> None:
        opened = int(ShopClock.now().replace(tzinfo=UTC).timestamp() * 1000)
        # AWS's own are alike: the moment, and eight digits.
        self.id = f"shardId-{opened:020d}-{zlib.crc32(b'%d' % self.first):08x}"

    def described(self) -> dict[str, Any]:
        """Returns the shard as DescribeStream's row."""
        numbers = {"StartingSequenceNumber": str(self.first)}
        if self.last is not None:
            numbers["EndingSequenceNumber"] = str(self.last)
        parent = {"ParentShardId": self.parent} if self.parent else {}
        return {"ShardId": self.id, "SequenceNumberRange": numbers, **parent}


class ShopShards(table.StreamShard):
    """Replaces moto's single endless shard of a table."""

    def __init__(self, account_id: str, table: Table) -> None:
        super().__init__(account_id, table)
        self._numbers = itertools.count(self.starting_sequence_number)
        self._lock = threading.Lock()
        self.shards = [_ShopShard(None, range(_HASHES), next(self._numbers))]

    def add(self, old: Item | None, new: Item | None) -> None:
        """Adds a change to the open shard of its key."""
        with self._lock:
            super().add(old, new)
            record = self.items.pop().to_json()
            change = record["dynamodb"]
            change["SequenceNumber"] = str(next(self._numbers))
            key = repr(change["Keys"][self.table.hash_key_attr]).encode()
            place = zlib.crc32(key) % _HASHES
            (shard,) = (each for each in self._open() if place in each.hashes)
            shard.records.append(record)

    def split(self) -> None:
        """Closes the open shard with the widest range of hashes; two children share the range."""
        with self._lock:
            shard = max(self._open(), key=lambda each: len(each.hashes))
            middle = len(shard.hashes) // 2
            self._continue(shard, [shard.hashes[:middle], shard.hashes[middle:]])

    def rotate(self) -> None:
        """Closes every open shard, as after about four hours; each gets one child."""
        with self._lock:
            for shard in self._open():
                self._continue(shard, [shard.hashes])

    def _open(self) -> list[_ShopShard]:
        return [each for each in self.shards if each.last is None]

    def _continue(self, shard: _ShopShard, ranges: list[range]) -> None:
        shard.last = next(self._numbers)
        self.shards += [_ShopShard(shard.id, hashes, next(self._numbers)) for hashes in ranges]

    def shard(self, shard_id: str) -> _ShopShard:
        """Returns the shard with this id. Raises the service's errors."""
        for each in self.shards:
            if each.id == shard_id:
                return each
        raise ResourceNotFoundException(f"Shard does not exist: {shard_id}")


class ShopStreams(DynamoDBStreamsHandler):
    """Replaces moto's answers; an iterator is a stream, a shard and an index into its records."""

    def describe_stream(self) -> ActionResult:
        """Returns all shards on one page."""
        arn = self._get_param("StreamArn")
        shards = [each.described() for each in lineage(arn).shards]
        described = self.backend.describe_stream(arn)
        return ActionResult({"StreamDescription": {**described, "Shards": shards}})

    def get_shard_iterator(self) -> ActionResult:
        """Returns an iterator for any of the five iterator types."""
        arn, name = self._get_param("StreamArn"), self._get_param("ShardId")
        records = lineage(arn).shard(name).records
        number = int(self._get_param("SequenceNumber", 0))
        match self._get_param("ShardIteratorType"):
            case "TRIM_HORIZON":
                place = 0
            case "LATEST":
                place = len(records)
            case "AT_TIMESTAMP":
                start = datetime.fromtimestamp(self._get_float_param("Timestamp"), UTC)
                naive = start.replace(tzinfo=None)
                place = bisect_left(records, naive, key=_created)
            case "AT_SEQUENCE_NUMBER":
                place = bisect_left(records, number, key=_number)
            case _:
                place = bisect_left(records, number + 1, key=_number)
        return ActionResult({"ShardIterator": f"{arn}|{name}|{place}"})

    def get_records(self) -> ActionResult:
        """Returns a page; a closed shard's last one has no next iterator."""
        arn, name, place = self._get_param("ShardIterator").split("|")
        shard = lineage(arn).shard(name)
        has_ended = shard.last is not None
        end = int(place) + int(self._get_param("Limit", 1000))
        page = shard.records[int(place) : end]
        following = f"{arn}|{name}|{int(place) + len(page)}"
        more = {} if has_ended and end >= len(shard.records) else {"NextShardIterator": following}
        return ActionResult({"Records": page, **more})


def _created(record: dict[str, Any]) -> datetime:
    created: datetime = record["dynamodb"]["ApproximateCreationDateTime"]
    return created


def _number(record: dict[str, Any]) -> int:
    return int(record["dynamodb"]["SequenceNumber"])


def lineage(arn: str) -> ShopShards:
    """Returns the shards of a stream. Raises the service's errors."""
    _, _, _, region, account, resource = arn.split(":", 5)
    _, name, _, label = resource.split("/")
    found = dynamodb_backends[account][region].get_table(name)
    shards = found.stream_shard
    if found.latest_stream_label != label or not isinstance(shards, ShopShards):
        raise ResourceNotFoundException(f"Requested resource not found: Stream: {arn} not found")
    return shards


def set_up() -> None:
    """Replaces moto's streams and clock."""
    module: Any = table
    module.StreamShard, module.utcnow = ShopShards, ShopClock.now
    urls.url_paths["{0}/$"] = ShopStreams.dispatch
