"""Print each change as plain JSON, a line each; numbers keep their digits."""

import sys

import msgspec

from watcher import Record
from watcher.printing.escaping import printable_json
from watcher.printing.style import time_text
from watcher.record.images import plain_json

on_a_terminal = sys.stdout.isatty()


def handle(record: Record) -> None:
    change = record.wire.dynamodb
    images = plain_json([change.Keys, change.OldImage, change.NewImage])
    key, old, new = (msgspec.Raw((image or "null").encode()) for image in images)
    # The fields that --jmespath sees.
    plain = {
        "eventName": record.event_name,
        "key": key,
        "old": old,
        "new": new,
        "createdAt": time_text(record.created_at),
        "sequenceNumber": record.sequence_number,
        "shardId": record.shard_id,
        "table": record.table,
    }
    line = msgspec.json.encode(plain).decode()
    sys.stdout.write((printable_json(line) if on_a_terminal else line) + "\n")
