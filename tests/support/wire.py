"""Records and pages on the wire, made by hand."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

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


DIGITS = "12345678901234567890.1234567891"
ODD_KEY = {"aa": {"S": "s"}, "zz": {"S": "p"}}
"""Of a table whose partition key, zz, comes last by name."""
ODD_ITEM = {
    **ODD_KEY,
    "n": {"N": DIGITS},
    "city": {"S": "東京"},
    "blob": {"B": "AP8="},
    "tags": {"SS": ["x", "y"]},
}
ODD_VALUES = (
    re.escape(DIGITS),
    "東京",
    r"b'\\x00\\xff'|AP8=",
    r"""\{'x', 'y'\}|\[\s*"*x"*,\s*"*y"*\s*\]""",
)
"""Patterns of the values of `ODD_ITEM` as outputs print them."""


def odd_changes() -> list[dict[str, Any]]:
    """Returns an item's insert, a change of its last digit, and its removal by time-to-live."""
    changed = {**ODD_ITEM, "n": {"N": DIGITS[:-1] + "2"}}
    common = {"Keys": ODD_KEY, "StreamViewType": "NEW_AND_OLD_IMAGES"}
    service = {"type": "Service", "principalId": "dynamodb.amazonaws.com"}
    return [
        {"eventName": "INSERT", "dynamodb": {**common, "NewImage": ODD_ITEM}},
        {"eventName": "MODIFY", "dynamodb": {**common, "OldImage": ODD_ITEM, "NewImage": changed}},
        {
            "eventName": "REMOVE",
            "dynamodb": {**common, "OldImage": changed},
            "userIdentity": service,
        },
    ]
