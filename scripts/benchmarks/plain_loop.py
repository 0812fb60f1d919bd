"""The naive way, as most scripts do it: boto3's `get_records` in a loop, a call per record.

Arguments: the stream, how many pages, and what to do: `keys`, `new`, `json`, `summary`, `key` or
`filter`.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import boto3
from boto3.dynamodb.types import TypeDeserializer

_deserializer = TypeDeserializer()


def keys(record: dict[str, Any]) -> None:
    """What changed, by event name and keys."""
    record["eventName"], record["dynamodb"]["Keys"]


def new(record: dict[str, Any]) -> None:
    """The whole new image as native values."""
    image = record["dynamodb"]["NewImage"]
    {name: _deserializer.deserialize(value) for name, value in image.items()}


def as_json(record: dict[str, Any]) -> None:
    """A line of JSON."""
    sys.stdout.write(json.dumps(record, default=str) + "\n")


def summary(record: dict[str, Any]) -> None:
    """A line for people."""
    change = record["dynamodb"]
    key = ", ".join(
        f"{name}={text}"
        for name, value in sorted(change["Keys"].items())
        for text in value.values()
    )
    created = change["ApproximateCreationDateTime"].isoformat()
    sys.stdout.write(f"[{created}] - {record['eventName']:^6} - {key}\n")


def key(record: dict[str, Any]) -> None:
    """The changes of one customer's orders: one in a hundred."""
    if record["dynamodb"]["Keys"]["customer"]["S"] == "user-042":
        keys(record)


def image(record: dict[str, Any]) -> None:
    """The changes that a filter on the new image lets through: one in a hundred."""
    if float(record["dynamodb"]["NewImage"]["total"]["N"]) >= 1990:
        keys(record)


WHAT = {"keys": keys, "new": new, "json": as_json, "summary": summary, "key": key, "filter": image}


def main(stream: str, pages: int, handle: Any) -> None:
    """Read so many pages of the first shard."""
    client: Any = boto3.client("dynamodbstreams")
    shard = client.describe_stream(StreamArn=stream)["StreamDescription"]["Shards"][0]
    iterator = client.get_shard_iterator(
        StreamArn=stream, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
    )["ShardIterator"]
    for _ in range(pages):
        answer = client.get_records(ShardIterator=iterator)
        for record in answer["Records"]:
            handle(record)
        iterator = answer["NextShardIterator"]


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), WHAT[sys.argv[3]])
