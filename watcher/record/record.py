"""One change of one item: boto3's record dict, and shorter ways to what is in it."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Protocol

import msgspec

from watcher.record.boto3_shape import Change, creation_time, native, native_item
from watcher.record.compare import ABSENT, Absent, Attribute, changed_values, images_missing
from watcher.record.origin import Origin
from watcher.record.wire import NO_IMAGE, WireRecord, is_by_ttl
from watcher.service.json_text import read

_wire_record = msgspec.json.Decoder(WireRecord)


class RawRecords(Protocol):
    """The bytes of a page's records, by their place in it."""

    def __getitem__(self, place: int, /) -> msgspec.Raw: ...


class Record(dict[str, Any]):
    """One change of one item: boto3's record dict, and shorter ways to what is in it.

    `record["eventName"]`, `record["dynamodb"]["Keys"]`, `…["NewImage"]` are what boto3's
    `get_records` gives: images in wire types (`{"S": "text"}`), `B` as bytes,
    `ApproximateCreationDateTime` an aware datetime. `key`, `old` and `new` hold native values.
    """

    __slots__ = ("_page", "_place", "_wire", "origin")
    _wire: WireRecord
    _page: RawRecords
    _place: int

    origin: Origin
    """The stream and the shard that the record was read from, as one key."""

    @classmethod
    def from_wire(cls, wire: WireRecord, page: RawRecords, place: int, origin: Origin) -> Record:
        """A record from its fields, and its place in the page that they came from."""
        record = cls()
        record["dynamodb"] = Change.from_wire(wire.dynamodb)
        record._wire = wire
        record._page = page
        record._place = place
        record.origin = origin
        if wire.eventID is not None:
            record["eventID"] = wire.eventID
        if wire.eventName is not None:
            record["eventName"] = wire.eventName
        if wire.eventVersion is not None:
            record["eventVersion"] = wire.eventVersion
        if wire.eventSource is not None:
            record["eventSource"] = wire.eventSource
        if wire.awsRegion is not None:
            record["awsRegion"] = wire.awsRegion
        if wire.userIdentity is not None:
            record["userIdentity"] = wire.userIdentity
        return record

    @classmethod
    def from_json(cls, raw: bytes, shard_id: str = "", stream: str = "") -> Record:
        """A record from its wire JSON, as `--print-json` writes it; `stream` is its stream's ARN.

        Raises msgspec.DecodeError where `raw` is not a record.
        """
        origin = Origin(stream, shard_id)
        return cls.from_wire(read(_wire_record, raw), (msgspec.Raw(raw),), 0, origin)

    @property
    def shard_id(self) -> str:
        """The shard that the record was read from."""
        return self.origin.shard_id

    @property
    def stream(self) -> str:
        """The ARN of the stream that the record was read from; "" where that is not known."""
        return self.origin.stream

    @property
    def table(self) -> str:
        """The name of the table that was changed; "" where the stream is not known."""
        return self.origin.table

    @property
    def raw(self) -> msgspec.Raw:
        """The record's wire JSON, byte for byte."""
        return self._page[self._place]

    @property
    def wire(self) -> WireRecord:
        """The fields as they are on the wire, the images undecoded: for a look at great speed."""
        return self._wire

    def plain(self) -> dict[str, Any]:
        """The same as a dict of dicts, for what looks past a dict's methods (orjson, yaml)."""
        return {**self, "dynamodb": dict(self["dynamodb"])}

    @property
    def key(self) -> dict[str, Any]:
        """The item's key attributes, as native values: `{"pk": "user-42"}`."""
        return self._native(self._wire.dynamodb.Keys) or {}

    @property
    def new(self) -> dict[str, Any] | None:
        """The item after the change; None for a removal, or where the view type has no images."""
        return self._native(self._wire.dynamodb.NewImage)

    @property
    def old(self) -> dict[str, Any] | None:
        """The item before the change; None for an insert, or where the view type has no images."""
        return self._native(self._wire.dynamodb.OldImage)

    @staticmethod
    def _native(raw: msgspec.Raw) -> dict[str, Any] | None:
        return None if raw is NO_IMAGE else native_item(raw)

    @property
    def changes(self) -> dict[str, tuple[Any, Any]]:
        """Attribute → (old value, new value), for the attributes that differ; ABSENT where none.

        Empty where the stream's view type doesn't carry the images that it takes to tell.
        """
        return {
            name: (_native_if_any(old), _native_if_any(new))
            for name, (old, new) in (changed_values(self._wire) or {}).items()
        }

    @property
    def images_missing(self) -> bool:
        """Whether an image that this kind of change should have is missing (by the view type)."""
        return images_missing(self._wire)

    @property
    def created_at(self) -> datetime | None:
        """When the change was made, to the second (the service's ApproximateCreationDateTime)."""
        seconds = self._wire.dynamodb.ApproximateCreationDateTime
        return None if seconds is None else creation_time(seconds)

    @property
    def event_name(self) -> str:
        """INSERT, MODIFY or REMOVE."""
        return self._wire.eventName or ""

    @property
    def sequence_number(self) -> str:
        """The record's place in its shard: 21 to 40 digits, to be compared as an integer."""
        return self._wire.dynamodb.SequenceNumber

    @property
    def expired_by_ttl(self) -> bool:
        """Whether this is a removal by DynamoDB's time-to-live, not by a caller.

        https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/time-to-live-ttl-streams.html
        """
        return is_by_ttl(self._wire)

    def __reduce__(self) -> tuple[Any, ...]:
        return Record.from_json, (bytes(self.raw), self.shard_id, self.stream)


def _native_if_any(value: Attribute | Absent) -> Any:
    return ABSENT if isinstance(value, Absent) else native(value)
