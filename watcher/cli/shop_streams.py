"""The demo's streams: moto's DynamoDB with shards that split and rotate, as a busy table's do.

A module of its own: moto names a backend by its class's module, which of a program is `__main__`.
"""

from __future__ import annotations

import itertools
import threading
import zlib
from bisect import bisect_left
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from moto.core.responses import ActionResult
from moto.dynamodb.exceptions import ResourceNotFoundException
from moto.dynamodb.models import dynamodb_backends, table
from moto.dynamodb.models.dynamo_type import Item
from moto.dynamodb.models.table import Table
from moto.dynamodbstreams import urls
from moto.dynamodbstreams.responses import DynamoDBStreamsHandler

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

    def described(self) -> dict[str, object]:
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
            hash_key = zlib.crc32(key) % _HASHES
            (shard,) = (each for each in self._open() if hash_key in each.hashes)
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
        shards = [each.described() for each in shards_of(arn).shards]
        described = self.backend.describe_stream(arn)
        return ActionResult({"StreamDescription": {**described, "Shards": shards}})

    def get_shard_iterator(self) -> ActionResult:
        """Returns an iterator for any of the five iterator types."""
        arn, name = self._get_param("StreamArn"), self._get_param("ShardId")
        records = shards_of(arn).shard(name).records
        number = int(self._get_param("SequenceNumber", 0))
        match self._get_param("ShardIteratorType"):
            case "TRIM_HORIZON":
                index = 0
            case "LATEST":
                index = len(records)
            case "AT_TIMESTAMP":
                start = datetime.fromtimestamp(self._get_float_param("Timestamp"), UTC)
                naive = start.replace(tzinfo=None)
                index = bisect_left(records, naive, key=_created)
            case "AT_SEQUENCE_NUMBER":
                index = bisect_left(records, number, key=_number)
            case _:
                index = bisect_left(records, number + 1, key=_number)
        return ActionResult({"ShardIterator": f"{arn}|{name}|{index}"})

    def get_records(self) -> ActionResult:
        """Returns a page; a closed shard's last one has no next iterator."""
        arn, name, index = self._get_param("ShardIterator").split("|")
        shard = shards_of(arn).shard(name)
        has_ended = shard.last is not None
        end = int(index) + int(self._get_param("Limit", 1000))
        page = shard.records[int(index) : end]
        following = f"{arn}|{name}|{int(index) + len(page)}"
        more = {} if has_ended and end >= len(shard.records) else {"NextShardIterator": following}
        return ActionResult({"Records": page, **more})


def _created(record: dict[str, Any]) -> datetime:
    created: datetime = record["dynamodb"]["ApproximateCreationDateTime"]
    return created


def _number(record: dict[str, Any]) -> int:
    return int(record["dynamodb"]["SequenceNumber"])


def shards_of(arn: str) -> ShopShards:
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
