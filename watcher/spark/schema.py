"""The columns: their names and types, and a page's records as an Arrow batch of them."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa

from watcher.aws.arns import table_name
from watcher.errors import UsageError
from watcher.records import page as pages
from watcher.records import plain_json
from watcher.records.diff import changed_attributes_of
from watcher.records.wire import WireChange, WireRecord
from watcher.spark.options import SourceOptions
from watcher.spark.typed import TypedImages
from watcher.streams.messages import Page

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
        of_several = {"event_source_arn": "string"} if options.table_names else {}
        return _chosen({"shard_id": "string", "record": "string"} | of_several, options)
    whole = dict(_COLUMNS)
    if options.image_schema:
        whole["new_image"] = whole["old_image"] = f"struct<{options.image_schema}>"
    if options.changed_attributes:
        whole["changed_attributes"] = "array<string>"
    return _chosen(whole, options)


def _chosen(whole: dict[str, str], options: SourceOptions) -> dict[str, str]:
    if options.table_names:
        whole["table_name"] = "string"
    for name in options.columns or ():
        if name not in whole:
            near = difflib.get_close_matches(name, whole, 1) or [", ".join(whole)]
            raise UsageError(f"there is no column {name}; is it {near[0]}?", "columns")
    return {name: whole[name] for name in options.columns or whole}


def ddl(options: SourceOptions) -> str:
    """The columns of a read, as Spark's DDL."""
    return ", ".join(f"{name} {kind}" for name, kind in columns(options).items())


class _Changes(NamedTuple):
    """The records of a page that become rows."""

    records: Sequence[WireRecord]
    changes: Sequence[WireChange]
    shard_id: str
    table: str


class Columns:
    """Turns records into Arrow batches of a read's columns."""

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        self._wire_records = options.wire_records
        self._text: Callable[[Sequence[bytes | msgspec.Raw]], list[str | None]] = (
            plain_json.plain_json if options.image_format == "json" else plain_json.wire_json
        )
        self._names: list[str] = schema.names
        self._typed: dict[str, TypedImages] = {
            field.name: TypedImages(field.type)
            for field in schema
            if field.name in _IMAGES and not pa.types.is_string(field.type)
        }

    def batch(
        self,
        page: Page,
        shard_id: str,
        arn: str = "",
        chosen: Callable[[Sequence[WireRecord]], Sequence[WireRecord]] = lambda records: records,
    ) -> pa.RecordBatch:
        """One Arrow batch of (the chosen) records of one shard of a stream, in their order."""
        if self._wire_records:
            raws = pages.raw_records(page.body)[page.first : page.last]
            made = {
                "shard_id": pa.repeat(shard_id, len(raws)),
                "record": _strings(plain_json.wire_json(raws)),
                "event_source_arn": pa.repeat(arn, len(raws)),
                "table_name": pa.repeat(table_name(arn), len(raws)),
            }
            return pa.RecordBatch.from_pydict({name: made[name] for name in self._names})
        return self.of_records(chosen(page.records()), shard_id, table_name(arn))

    def of_records(
        self, records: Sequence[WireRecord], shard_id: str, table: str
    ) -> pa.RecordBatch:
        """The same of records that are in no page."""
        rows = _Changes(records, [record.dynamodb for record in records], shard_id, table)
        return pa.RecordBatch.from_pydict({name: self._column(name, rows) for name in self._names})

    def _column(self, name: str, rows: _Changes) -> pa.Array:
        if name not in _IMAGES:
            return _MADE[name](rows)
        raws = list(map(_IMAGES[name], rows.changes))
        return self._typed[name].column(raws) if name in self._typed else _strings(self._text(raws))


_IMAGES: Final[Mapping[str, Callable[[WireChange], msgspec.Raw]]] = {
    "keys": attrgetter("Keys"),
    "new_image": attrgetter("NewImage"),
    "old_image": attrgetter("OldImage"),
}
_MADE: Final[Mapping[str, Callable[[_Changes], pa.Array]]] = {
    "event_id": lambda rows: _strings([each.eventID for each in rows.records]),
    "event_name": lambda rows: _strings([each.eventName for each in rows.records]),
    "event_version": lambda rows: _strings([each.eventVersion for each in rows.records]),
    "event_source": lambda rows: _strings([each.eventSource for each in rows.records]),
    "aws_region": lambda rows: _strings([each.awsRegion for each in rows.records]),
    "approximate_creation_time": lambda rows: pa.array(
        [_micros(each.ApproximateCreationDateTime) for each in rows.changes], _TIME
    ),
    "sequence_number": lambda rows: _strings([each.SequenceNumber for each in rows.changes]),
    "size_bytes": lambda rows: pa.array([each.SizeBytes for each in rows.changes], pa.int64()),
    "stream_view_type": lambda rows: _strings([each.StreamViewType for each in rows.changes]),
    "user_identity": lambda rows: _identities(rows.records),
    "shard_id": lambda rows: pa.repeat(rows.shard_id, len(rows.records)),
    "table_name": lambda rows: pa.repeat(rows.table, len(rows.records)),
    "changed_attributes": lambda rows: pa.array(
        changed_attributes_of(rows.records), pa.list_(pa.string())
    ),
}


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
