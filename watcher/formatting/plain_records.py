"""A record as one JSON document of plain values, for queries, templates and other programs."""

from __future__ import annotations

import hashlib

import msgspec

from watcher.aws.key_schema import in_order
from watcher.formatting.style import time_text
from watcher.records.diff import normal_keys
from watcher.records.plain_json import plain_json
from watcher.records.record import Record
from watcher.records.wire import SNAPSHOT


def ordered_key(key: str | None) -> str:
    """Returns a key in plain JSON with its attributes in the table's order; `null` for none.

    Of changes in files, whose table nobody has described, they are sorted by name.
    """
    if key is None or key.count(":") < 2:
        return key or "null"
    parts = msgspec.json.decode(key, type=dict[str, msgspec.Raw])
    return msgspec.json.encode({name: parts[name] for name in in_order((*parts,))}).decode()


def plain_line(record: Record) -> str:
    """Returns a change as one line of plain JSON: `eventName`, `key`, `old`, `new` and others.

    Numbers keep all their digits, binary is base64 text, sets are arrays; a missing item is null.
    """
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
    """Returns an item's key as JSON, the partition key first: the same text for all its changes."""
    return ordered_key(plain_json(normal_keys([record.wire.dynamodb.Keys]))[0])


def record_id(record: Record) -> str:
    """Returns an id that is the same for a repeated record, and for no other record."""
    if record.event_name != SNAPSHOT:
        return f"{record.shard_id}:{record.sequence_number}"
    # A snapshot's numbers start at 1 for each table and each snapshot.
    body = record.stream.encode() + bytes(record.raw)
    return f"{record.shard_id}:{hashlib.sha256(body).hexdigest()}"
