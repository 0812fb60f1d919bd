"""The columns: their names and types, and a page's records as an Arrow batch of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa

from watcher.reading.messages import Page
from watcher.record import images
from watcher.record import page as pages
from watcher.record.compare import changed_attributes
from watcher.record.wire import WireRecord
from watcher.spark.options import SourceOptions
from watcher.spark.typed import typed_images

_COLUMNS: Final = {
    **dict.fromkeys(("event_id", "event_name", "event_version"), "string"),
    **dict.fromkeys(("event_source", "aws_region"), "string"),
    "approximate_creation_time": "timestamp",
    **dict.fromkeys(("keys", "new_image", "old_image", "sequence_number"), "string"),
    "size_bytes": "long",
    "stream_view_type": "string",
    "user_identity": "struct<type: string, principal_id: string>",
    "shard_id": "string",
}
_TIME: Final = pa.timestamp("us", tz="UTC")
_IDENTITY: Final = pa.struct([("type", pa.string()), ("principal_id", pa.string())])


def columns(options: SourceOptions) -> dict[str, str]:
    """The columns of a read, in their order, and their types in Spark's DDL."""
    if options.wire_records:
        return {"shard_id": "string", "record": "string"}
    whole = dict(_COLUMNS)
    if options.image_schema:
        whole["new_image"] = whole["old_image"] = f"struct<{options.image_schema}>"
    if options.changed_attributes:
        whole["changed_attributes"] = "array<string>"
    return whole


def ddl(options: SourceOptions) -> str:
    """The columns of a read, as Spark's DDL."""
    return ", ".join(f"{name} {kind}" for name, kind in columns(options).items())


class Columns:
    """Turns records into Arrow batches of a read's columns."""

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        self._wire_records = options.wire_records
        self._changed = options.changed_attributes
        self._text: Callable[[Sequence[bytes | msgspec.Raw]], list[str | None]] = (
            images.plain_json if options.image_format == "json" else images.wire_json
        )
        self._image = None if options.wire_records else schema.field("new_image").type

    def batch(self, page: Page, shard_id: str) -> pa.RecordBatch:
        """One Arrow batch of records of one shard, in their order."""
        if self._wire_records:
            raws = pages.raw_records(page.body)[page.first : page.last]
            shards = pa.repeat(shard_id, len(raws))
            values = {"shard_id": shards, "record": _strings(images.wire_json(raws))}
            return pa.RecordBatch.from_pydict(values)
        return self.of_records(page.records(), shard_id)

    def of_records(self, records: Sequence[WireRecord], shard_id: str) -> pa.RecordBatch:
        """The same of records that are in no page."""
        changes = [record.dynamodb for record in records]
        new = [change.NewImage for change in changes]
        old = [change.OldImage for change in changes]
        values: dict[str, pa.Array] = {
            "event_id": _strings([record.eventID for record in records]),
            "event_name": _strings([record.eventName for record in records]),
            "event_version": _strings([record.eventVersion for record in records]),
            "event_source": _strings([record.eventSource for record in records]),
            "aws_region": _strings([record.awsRegion for record in records]),
            "approximate_creation_time": pa.array(
                [_micros(change.ApproximateCreationDateTime) for change in changes], _TIME
            ),
            "keys": _strings(self._text([change.Keys for change in changes])),
            "new_image": self._images(new),
            "old_image": self._images(old),
            "sequence_number": _strings([change.SequenceNumber for change in changes]),
            "size_bytes": pa.array([change.SizeBytes for change in changes], pa.int64()),
            "stream_view_type": _strings([change.StreamViewType for change in changes]),
            "user_identity": _identities(records),
            "shard_id": pa.repeat(shard_id, len(records)),
        }
        if self._changed:
            values["changed_attributes"] = pa.array(
                list(map(changed_attributes, records)), pa.list_(pa.string())
            )
        return pa.RecordBatch.from_pydict(values)

    def _images(self, raws: Sequence[msgspec.Raw]) -> pa.Array:
        if pa.types.is_string(self._image):
            return _strings(self._text(raws))
        return typed_images(raws, self._image)


def _strings(values: list[str | None]) -> pa.Array:
    return pa.array(values, pa.string())


def _micros(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1_000_000)


def _identities(records: Sequence[WireRecord]) -> pa.Array:
    """Who made a change: DynamoDB itself, where it deleted what has expired; else nobody named."""
    if not any(record.userIdentity for record in records):
        return pa.nulls(len(records), _IDENTITY)
    rows: list[dict[str, Any] | None] = []
    for record in records:
        who = record.userIdentity
        # Lambda's records spell them type and principalId, the API Type and PrincipalId.
        rows.append(
            who
            and {
                "type": who.get("Type", who.get("type")),
                "principal_id": who.get("PrincipalId", who.get("principalId")),
            }
        )
    return pa.array(rows, _IDENTITY)
