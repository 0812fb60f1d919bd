"""An archive's rows as records: of each item in their order, its images in wire types."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

import msgspec

from watcher.errors import UsageError
from watcher.past.archive import Archive
from watcher.record.compare import Attribute
from watcher.record.record import Record

_image: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_encode: Final = msgspec.json.Encoder().encode


class Archived(msgspec.Struct, frozen=True):
    """A record out of an archive."""

    record: Record
    exact: bool
    """Whether its images are in wire types; plain JSON does not tell a set from a list."""


def records(archive: Archive, start: datetime | None = None) -> Iterator[Archived]:
    """An archive's records from a time on; of each item in their order.

    The files of a day have no order, so that memory holds a day's records. Raises UsageError.
    """
    for rows in archive.days():
        chosen = [row for row in rows if start is None or _time(row) >= start]
        for row in sorted(chosen, key=lambda row: (_time(row), int(_number(row)))):
            yield archived(row)


def oldest(archive: Archive) -> datetime | None:
    """When an archive's oldest change was made; None where it has none."""
    for rows in archive.days():
        if times := [_time(row) for row in rows]:
            return min(times)
    return None


def wire_value(plain: msgspec.Raw) -> Attribute:
    """Plain JSON in wire types again; sets are lists there, and binary values are strings."""
    return _typed(json.loads(bytes(plain), parse_float=Decimal, parse_int=Decimal))


def _typed(value: Any) -> Attribute:
    match value:
        case None:
            return {"NULL": True}
        case bool():
            return {"BOOL": value}
        case Decimal():
            return {"N": str(value)}
        case dict():
            return {"M": {name: _typed(part) for name, part in value.items()}}
        case list():
            return {"L": [_typed(part) for part in value]}
    return {"S": value}


def _time(row: Mapping[str, Any]) -> datetime:
    time = row.get("approximate_creation_time")
    if not isinstance(time, datetime):
        raise UsageError("a row of the archive has no approximate_creation_time")
    return time


def _number(row: Mapping[str, Any]) -> str:
    number = row.get("sequence_number") or ""
    if not number.isdecimal():
        raise UsageError("a row of the archive has no sequence_number")
    return str(number)


def record(row: Mapping[str, Any]) -> Record:
    """A row as a record. Raises UsageError."""
    return archived(row).record


def archived(row: Mapping[str, Any]) -> Archived:
    """A row as a record, and whether its types are known. Raises UsageError."""
    try:
        return _archived(row)
    except (msgspec.DecodeError, AttributeError, ValueError, TypeError, KeyError) as error:
        raise UsageError(f"a row of the archive is no change: {error}") from None


def _archived(row: Mapping[str, Any]) -> Archived:
    keys = _image.decode(row["keys"])
    # A key attribute is never a map: this tells the two forms apart.
    exact = all(bytes(value)[:1] == b"{" for value in keys.values())
    change: dict[str, Any] = {
        "SequenceNumber": _number(row),
        "ApproximateCreationDateTime": _time(row).timestamp(),
    }
    for name, column in (("Keys", "keys"), ("NewImage", "new_image"), ("OldImage", "old_image")):
        if text := row.get(column):
            change[name] = msgspec.Raw(text.encode()) if exact else _wire_image(text)
    for name, column in (("SizeBytes", "size_bytes"), ("StreamViewType", "stream_view_type")):
        if row.get(column) is not None:
            change[name] = row[column]
    wire = {"eventID": row.get("event_id"), "eventName": row["event_name"], "dynamodb": change}
    who = row.get("user_identity") or {}
    if who.get("type") and who.get("principal_id"):
        wire["userIdentity"] = {"type": who["type"], "principalId": who["principal_id"]}
    return Archived(Record.from_json(_encode(wire), row.get("shard_id") or ""), exact)


def _wire_image(text: str) -> dict[str, Attribute]:
    return {name: wire_value(value) for name, value in _image.decode(text).items()}
