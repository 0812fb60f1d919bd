"""A record as one JSON document of plain values: what a query over records looks at."""

from __future__ import annotations

import base64
import hashlib
from decimal import Decimal
from typing import Any

import msgspec
from boto3.dynamodb.types import Binary

from watcher.formatting.style import time_text
from watcher.records.plain_json import plain_json
from watcher.records.record import Record
from watcher.records.wire import SNAPSHOT

# DynamoDB's numbers end before 1E126; what an emulator lets through beyond is no number to JSON.
_MOST_DIGITS = 300


def plain_record(record: Record) -> dict[str, Any]:
    """`eventName`, `key`, `old`, `new`, `createdAt`, `sequenceNumber`, `shardId`.

    Items are plain JSON: numbers are numbers (whole ones exact, others as precise as a float),
    binary is base64 text, sets are sorted lists; `old` and `new` are null where there is none.
    """
    return {
        "eventName": record.event_name,
        "key": plain(record.key),
        "old": plain(record.old),
        "new": plain(record.new),
        "createdAt": time_text(record.created_at),
        "sequenceNumber": record.sequence_number,
        "shardId": record.shard_id,
        "table": record.table,
    }


def plain_line(record: Record) -> str:
    """The same fields as one line; numbers keep all their digits."""
    change = record.wire.dynamodb
    images = plain_json([change.Keys, change.OldImage, change.NewImage])
    key, old, new = (msgspec.Raw((image or "null").encode()) for image in images)
    line = {
        "eventName": record.event_name,
        "key": key,
        "old": old,
        "new": new,
        "createdAt": time_text(record.created_at),
        "sequenceNumber": record.sequence_number,
        "shardId": record.shard_id,
        "table": record.table,
    }
    return msgspec.json.encode(line).decode()


def plain_key(record: Record) -> str:
    """An item's key, its attributes sorted: the same text for each of its changes."""
    (text,) = plain_json([record.wire.dynamodb.Keys])
    parts = msgspec.json.decode(text or "{}", type=dict[str, msgspec.Raw])
    return msgspec.json.encode(dict(sorted(parts.items()))).decode()


def identity(record: Record) -> str:
    """The same text for a record that is sent again, and for no other record."""
    if record.event_name != SNAPSHOT:
        return f"{record.shard_id}:{record.sequence_number}"
    # Its number is a count: each table's, and each snapshot's, begins with 1.
    body = record.stream.encode() + bytes(record.raw)
    return f"{record.shard_id}:{hashlib.sha256(body).hexdigest()}"


def plain(value: Any) -> Any:
    """A native value as JSON has it."""
    match value:
        case dict():
            return {name: plain(part) for name, part in value.items()}
        case list():
            return [plain(part) for part in value]
        case set():
            return sorted(map(plain, value), key=lambda each: (isinstance(each, str), each))
        case Decimal() if value.adjusted() > _MOST_DIGITS:
            return str(value)
        case Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case Binary():
            return base64.b64encode(bytes(value)).decode()  # type: ignore[call-overload]
        case _:
            return value
