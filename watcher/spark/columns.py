"""The columns of a read: their names and types, and records as Arrow batches of them."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa

from watcher.aws.json_text import read
from watcher.errors import UsageError
from watcher.records import page as pages
from watcher.records import plain_json
from watcher.records.diff import changed_attributes, normal_keys
from watcher.records.wire import WireChange, WireRecord
from watcher.spark.options import SourceOptions
from watcher.streams.messages import Page

_COLUMNS: Final = {
    **dict.fromkeys(("event_id", "event_name", "event_version"), "string"),
    **dict.fromkeys(("event_source", "aws_region"), "string"),
    "approximate_creation_time": "timestamp",
    **dict.fromkeys(("keys", "new_image", "old_image"), "string"),
    **dict.fromkeys(("sequence_number", "position"), "string"),
    "size_bytes": "long",
    "stream_view_type": "string",
    "user_identity": "struct<type: string, principal_id: string>",
    "shard_id": "string",
}
# The service's numbers have up to 38.
_POSITION_DIGITS: Final = 40
_TIME: Final = pa.timestamp("us", tz="UTC")
_IDENTITY: Final = pa.struct([("type", pa.string()), ("principal_id", pa.string())])


def columns(options: SourceOptions) -> dict[str, str]:
    """Returns the columns of a read, in their order, with their types in Spark's DDL."""
    if options.wire_records:
        whole = {"shard_id": "string", "record": "string"}
        if options.columns:
            whole["event_source_arn"] = "string"
    else:
        whole = dict(_COLUMNS)
        if options.changed_attributes:
            whole["changed_attributes"] = "array<string>"
    for name in options.columns or ():
        if name not in whole:
            near = difflib.get_close_matches(name, whole, 1) or [", ".join(whole)]
            raise UsageError(f"no column {name}; did you mean {near[0]}?", "columns")
    return {name: whole[name] for name in options.columns or whole}


def ddl(options: SourceOptions) -> str:
    """Returns the columns of a read as Spark's DDL."""
    return ", ".join(f"{name} {kind}" for name, kind in columns(options).items())


class _Changes(NamedTuple):
    """Records that become rows."""

    records: Sequence[WireRecord]
    changes: Sequence[WireChange]
    shard_id: str
    key_names: Sequence[str]


class ArrowEncoder:
    """Turns records into Arrow batches of a read's columns."""

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        self._wire_records = options.wire_records
        self._redaction = options.redaction
        self._text: Callable[[Sequence[bytes | msgspec.Raw]], list[str | None]] = (
            plain_json.plain_json if options.image_format == "json" else plain_json.wire_json
        )
        self._names: list[str] = schema.names

    def encode(
        self, page: Page, shard_id: str, arn: str = "", key_names: Sequence[str] = ()
    ) -> pa.RecordBatch:
        """Returns the records of a shard's page, in their order; see `encode_records`."""
        if self._wire_records:
            raws = pages.raw_records(page.body)[page.start : page.stop]
            if self._redaction is not None:
                raws = [msgspec.Raw(self._redaction.record(raw)) for raw in raws]
            made = {
                "shard_id": pa.repeat(shard_id, len(raws)),
                "record": _strings(plain_json.wire_json(raws)),
                "event_source_arn": pa.repeat(arn, len(raws)),
            }
            return pa.RecordBatch.from_pydict({name: made[name] for name in self._names})
        return self.encode_records(page.records(), shard_id, key_names)

    def encode_records(
        self, records: Sequence[WireRecord], shard_id: str, key_names: Sequence[str]
    ) -> pa.RecordBatch:
        """Returns records of a shard, in their order.

        A key has its attributes in the order of `key_names`; where none are known, by their names.
        """
        if self._redaction is not None:
            records = list(map(self._redaction.wire, records))
        rows = _Changes(records, [record.dynamodb for record in records], shard_id, key_names)
        return pa.RecordBatch.from_pydict({name: self._column(name, rows) for name in self._names})

    def encode_items(
        self,
        items: Iterable[tuple[str | None, WireChange]],
        region: str | None,
        key_names: Sequence[str],
    ) -> pa.RecordBatch:
        """Returns what comes from no stream, with its event's name: without numbers and shards."""
        records = [
            WireRecord(change, eventName=kind, awsRegion=region, eventSource="aws:dynamodb")
            for kind, change in items
        ]
        batch = self.encode_records(records, "", key_names)
        for name in {"sequence_number", "shard_id"} & {*self._names}:
            nulls = pa.nulls(len(records), pa.string())
            batch = batch.set_column(self._names.index(name), name, nulls)
        return batch

    def _column(self, name: str, rows: _Changes) -> pa.Array:
        if name not in _IMAGES:
            return _MADE[name](rows)
        raws: Sequence[bytes | msgspec.Raw] = list(map(_IMAGES[name], rows.changes))
        if name == "keys":  # one text for each item, however a request wrote it
            ordered = [_in_order(change.Keys, rows.key_names) for change in rows.changes]
            raws = normal_keys(ordered)
        return _strings(self._text(raws))


def _in_order(key: msgspec.Raw, names: Sequence[str]) -> msgspec.Raw:
    """Returns a key's JSON with its attributes in order: the same text for all its changes."""
    if len(names) == 1 or not key:
        return key
    found = read(_attributes, key)
    order = sorted(found, key=lambda name: (names.index(name) if name in names else 2, name))
    return key if [*found] == order else msgspec.Raw(_encode({name: found[name] for name in order}))


def key_of_item(item: msgspec.Raw, names: Sequence[str]) -> msgspec.Raw:
    """Returns an item's key as the wire's JSON. Raises UsageError where it lacks an attribute."""
    found = read(_attributes, item)
    missing = [name for name in names if name not in found]
    if missing:
        raise UsageError(f"keys: an item has no {', '.join(missing)}")
    return msgspec.Raw(_encode({name: found[name] for name in names}))


_attributes: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_encode: Final = msgspec.json.Encoder().encode
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
    "position": lambda rows: _strings(
        [each.SequenceNumber.zfill(_POSITION_DIGITS) for each in rows.changes]
    ),
    "size_bytes": lambda rows: pa.array([each.SizeBytes for each in rows.changes], pa.int64()),
    "stream_view_type": lambda rows: _strings([each.StreamViewType for each in rows.changes]),
    "user_identity": lambda rows: _identities(rows.records),
    "shard_id": lambda rows: pa.repeat(rows.shard_id, len(rows.records)),
    "changed_attributes": lambda rows: pa.array(
        list(map(changed_attributes, rows.records)), pa.list_(pa.string())
    ),
}


def _strings(values: list[str | None]) -> pa.Array:
    return pa.array(values, pa.string())


def _micros(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1_000_000)


def _identities(records: Sequence[WireRecord]) -> pa.Array:
    """Returns who made each change: DynamoDB itself, where an item expired; else null."""
    if not any(record.userIdentity for record in records):
        return pa.nulls(len(records), _IDENTITY)
    rows: list[dict[str, Any] | None] = []
    for record in records:
        who = record.userIdentity
        # The service and emulators spell them both ways.
        rows.append(
            who
            and {
                "type": who.get("Type", who.get("type")),
                "principal_id": who.get("PrincipalId", who.get("principalId")),
            }
        )
    return pa.array(rows, _IDENTITY)
