"""Print each change in Debezium's JSON envelope, as Flink reads it.

https://debezium.io/documentation/reference/stable/connectors/mysql.html#mysql-events
"""

import logging
import time

import msgspec

from watcher import Record, __version__
from watcher.formatting.plain_records import ordered_key
from watcher.formatting.text import write_json
from watcher.records.plain_json import plain_json

OPERATIONS = {"INSERT": "c", "MODIFY": "u", "REMOVE": "d", "SNAPSHOT": "r"}

logger = logging.getLogger("watcher")
incomplete: set[str] = set()


def handle(record: Record) -> None:
    change = record.wire.dynamodb
    key, *images = plain_json([change.Keys, change.OldImage, change.NewImage])
    before, after = (msgspec.Raw((image or "null").encode()) for image in images)
    if record.images_missing:
        removed = record.event_name == "REMOVE"
        say_once(record)
        # As PostgreSQL's connector does without REPLICA IDENTITY FULL: what is gone has its key.
        before = msgspec.Raw(ordered_key(key).encode()) if removed else before
    envelope = {
        "before": before,
        "after": after,
        "source": source(record),
        "op": OPERATIONS.get(record.event_name, ""),
        "ts_ms": time.time_ns() // 1_000_000,
    }
    line = msgspec.json.encode(envelope).decode()
    write_json(line + "\n")


def source(record: Record) -> dict[str, str | int | bool | None]:
    """Returns where the change comes from; `ts_ms` is its time, to the second."""
    created = record.created_at
    return {
        "version": __version__,
        "connector": "dynamodb",
        "name": record.stream,
        "ts_ms": None if created is None else int(created.timestamp() * 1000),
        "snapshot": "true" if record.event_name == "SNAPSHOT" else "false",
        "db": record.get("awsRegion", ""),
        "sequence": record.sequence_number,
        "table": record.table,
        "shard_id": record.shard_id,
        "by_ttl": record.expired_by_ttl,
    }


def say_once(record: Record) -> None:
    """Warns once: Flink refuses updates without `before`, and ignores inserts without `after`."""
    if record.stream not in incomplete:
        incomplete.add(record.stream)
        view = record["dynamodb"].get("StreamViewType", "KEYS_ONLY")
        logger.warning(
            f"The stream's view type is {view}: before or after is null where there is no image; "
            "Flink's debezium-json needs NEW_AND_OLD_IMAGES"
        )
