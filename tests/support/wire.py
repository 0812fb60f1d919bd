"""Records and pages on the wire, made by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence

from watcher.aws.model import ShardKey
from watcher.records.record import Record

FIRST = 10**21


def created(number: int) -> int:
    """The time of a record."""
    return 1_700_000_000 + number // 1000


def wire(number: int, key: str = "a", *, size: int = 0) -> dict[str, object]:
    """One record as GetRecords answers it; its sequence number ends in `number`."""
    image = {"pk": {"S": key}, "n": {"N": str(number)}, "pad": {"S": "x" * size}}
    return {
        "eventID": f"{number:032x}",
        "eventName": "MODIFY",
        "eventSource": "aws:dynamodb",
        "awsRegion": "us-east-1",
        "dynamodb": {
            "ApproximateCreationDateTime": created(number),
            "Keys": {"pk": {"S": key}},
            "NewImage": image,
            "SequenceNumber": str(FIRST + number),
        },
    }


def shard_key(shard_id: str) -> ShardKey:
    """A shard of a stream that has no name."""
    return ShardKey("", shard_id)


def record(number: int, shard_id: str = "shard-0") -> Record:
    return Record.from_json(json.dumps(wire(number)).encode(), shard_id)


def body(numbers: Sequence[int], *, size: int = 0) -> bytes:
    """The body of a GetRecords answer."""
    records = [wire(number, size=size) for number in numbers]
    return json.dumps({"Records": records, "NextShardIterator": "more"}).encode()
