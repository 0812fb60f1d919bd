"""A record as one JSON document of plain values, for queries, templates and other programs."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import msgspec

from watcher.aws.key_schema import in_order
from watcher.formatting.style import time_text
from watcher.records.diff import normal_keys
from watcher.records.plain_json import plain_json
from watcher.records.record import Record, binary_of
from watcher.records.wire import SNAPSHOT

# DynamoDB's numbers are below 1E126; an emulator's larger ones don't fit JSON, and become text.
_MOST_DIGITS = 300
FIELDS = (
    *("eventName", "key", "old", "new", "createdAt", "sequenceNumber", "shardId", "table"),
    "expiredByTtl",
)
"""The names of a plain record's fields."""


def plain_record(record: Record) -> dict[str, object]:
    """Returns the fields of `--print-jsonl`: `eventName`, `key`, `old`, `new`, `createdAt`, others.

    Items are plain JSON: numbers are numbers (whole ones exact, others as precise as a float),
    binary is base64 text, sets are sorted lists; a missing `old` or `new` is null.
    """
    return {
        "eventName": record.event_name,
        "key": plain({name: record.key[name] for name in in_order((*record.key,))}),
        "old": plain(record.old),
        "new": plain(record.new),
        "createdAt": time_text(record.created_at),
        "sequenceNumber": record.sequence_number,
        "shardId": record.shard_id,
        "table": record.table,
        "expiredByTtl": record.expired_by_ttl,
    }


def ordered_key(key: str | None) -> str:
    """Returns a key in plain JSON with its attributes in the table's order; `null` for none."""
    if key is None or key.count(":") < 2:
        return key or "null"
    parts = msgspec.json.decode(key, type=dict[str, msgspec.Raw])
    return msgspec.json.encode({name: parts[name] for name in in_order((*parts,))}).decode()


def plain_line(record: Record) -> str:
    """Returns the fields of `plain_record` as one line of JSON; numbers keep all their digits."""
    change = record.wire.dynamodb
    keys, *images = plain_json([change.Keys, change.OldImage, change.NewImage])
    key = msgspec.Raw(ordered_key(keys).encode())
    old, new = (msgspec.Raw((image or "null").encode()) for image in images)
    line = {
        "eventName": record.event_name,
        "key": key,
        "old": old,
        "new": new,
        "createdAt": time_text(record.created_at),
        "sequenceNumber": record.sequence_number,
        "shardId": record.shard_id,
        "table": record.table,
        "expiredByTtl": record.expired_by_ttl,
    }
    return msgspec.json.encode(line).decode()


def plain_key(record: Record) -> str:
    """Returns an item's key as JSON with sorted attributes: the same text for all its changes."""
    (text,) = plain_json(normal_keys([record.wire.dynamodb.Keys]))
    parts = msgspec.json.decode(text or "{}", type=dict[str, msgspec.Raw])
    return msgspec.json.encode(dict(sorted(parts.items()))).decode()


def record_id(record: Record) -> str:
    """Returns an id that is the same for a repeated record, and for no other record."""
    if record.event_name != SNAPSHOT:
        return f"{record.shard_id}:{record.sequence_number}"
    # A snapshot's numbers start at 1 for each table and each snapshot.
    body = record.stream.encode() + bytes(record.raw)
    return f"{record.shard_id}:{hashlib.sha256(body).hexdigest()}"


def plain(value: object) -> object:
    """Converts a native value to a JSON value."""
    match value:
        case dict():
            return {name: plain(part) for name, part in value.items()}
        case list():
            return [plain(part) for part in value]
        case set():
            members: Iterable[Any] = map(plain, value)
            return sorted(members, key=lambda each: (isinstance(each, str), each))
        case Decimal() if value.adjusted() > _MOST_DIGITS:
            return str(value)
        case Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case _:
            binary = binary_of(value)
            return value if binary is None else base64.b64encode(binary).decode()
