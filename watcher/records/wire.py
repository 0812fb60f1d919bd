"""A record as it is on the wire, its images undecoded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec

from watcher.aws.json_text import read

KINDS: Final = ("INSERT", "MODIFY", "REMOVE")
"""The values of `eventName` for a change."""

Kind: TypeAlias = Literal["insert", "modify", "remove", "ttl", "snapshot"]
"""A kind of change, as filters name it."""

KeyValues: TypeAlias = Iterable[str] | Mapping[str, Any]
"""The items that a filter by key lets through: texts `NAME=VALUE`, or native values by name."""

FilterPattern: TypeAlias = str | Mapping[str, Any]
"""A condition (`total > 200`), or a pattern of Lambda's event filtering as JSON or as a dict."""

SNAPSHOT: Final = "SNAPSHOT"
"""The value of `eventName` for an item that a snapshot delivers as it is."""

NO_IMAGE: Final = msgspec.Raw()
"""The value of an image that the service left out (by the view type, or the kind of change)."""


class WireChange(msgspec.Struct, gc=False):
    """The `dynamodb` part of a record as it is on the wire, images undecoded."""

    SequenceNumber: str
    ApproximateCreationDateTime: float | None = None
    Keys: msgspec.Raw = NO_IMAGE
    NewImage: msgspec.Raw = NO_IMAGE
    OldImage: msgspec.Raw = NO_IMAGE
    SizeBytes: int | None = None
    StreamViewType: str | None = None


class WireRecord(msgspec.Struct, gc=False):
    """A record as it is on the wire; a field that the service leaves out is None."""

    dynamodb: WireChange
    eventID: str | None = None
    eventName: str | None = None
    eventVersion: str | None = None
    eventSource: str | None = None
    awsRegion: str | None = None
    userIdentity: dict[str, str] | None = None


_NO_IMAGES: Final = (msgspec.Raw(b"{}"), msgspec.Raw(b"null"))
"""What emulators write for an image that there is none of."""
_decode_record: Final = msgspec.json.Decoder(WireRecord)


def read_record(raw: bytes | msgspec.Raw) -> WireRecord:
    """Decodes a record. Raises msgspec.DecodeError where it is none."""
    record = read(_decode_record, raw)
    leave_out_empty_images((record,))
    return record


def leave_out_empty_images(records: Iterable[WireRecord]) -> None:
    """Removes the images `{}` and `null`, by which emulators say that there is none."""
    # All in one expression: it runs for each record, and nearly never finds one.
    for change in [
        change
        for each in records
        if (change := each.dynamodb).OldImage in _NO_IMAGES or change.NewImage in _NO_IMAGES
    ]:
        change.OldImage = image_if_any(change.OldImage)
        change.NewImage = image_if_any(change.NewImage)


def image_if_any(raw: msgspec.Raw) -> msgspec.Raw:
    """Returns an image; NO_IMAGE for one that says that there is none."""
    return NO_IMAGE if raw in _NO_IMAGES else raw


WireFilter: TypeAlias = Callable[[WireRecord], bool]
"""A function that is True for a matching record."""

TIME_TO_LIVE: Final = {"type": "Service", "principalId": "dynamodb.amazonaws.com"}
"""The caller that DynamoDB names for a removal by time-to-live."""
_OLDEST_EXPIRY: Final = 5 * 365 * 86_400
_image: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


class _Number(msgspec.Struct):
    N: str | None = None


_value: Final = msgspec.json.Decoder(_Number)


def is_by_ttl(record: WireRecord) -> bool:
    """Returns True for a removal by DynamoDB's time-to-live, False for a caller's."""
    who = record.userIdentity or {}
    principal = who.get("principalId", who.get("PrincipalId"))
    return is_time_to_live(who.get("type", who.get("Type")), principal)


def is_time_to_live(kind: str | None, principal: str | None) -> bool:
    """Returns True for the caller that DynamoDB names for time-to-live.

    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/time-to-live-ttl-streams.html
    """
    return kind == TIME_TO_LIVE["type"] and principal == TIME_TO_LIVE["principalId"]


def is_replicated_expiry(record: WireRecord, attribute: str) -> bool:
    """Returns True for a removal, by nobody who is named, of an item whose time had passed.

    In another region's replica that is all that shows of a removal by time-to-live, whose time
    stands in `attribute`. An item that expired more than five years ago is never removed so.
    """
    change = record.dynamodb
    removed_at = change.ApproximateCreationDateTime
    if record.eventName != "REMOVE" or record.userIdentity or not removed_at or not change.OldImage:
        return False
    raw = _image.decode(change.OldImage).get(attribute, msgspec.Raw(b"{}"))
    try:
        expiry = float(_value.decode(raw).N or "nan")
    except (msgspec.DecodeError, ValueError):
        return False
    return removed_at - _OLDEST_EXPIRY < expiry <= removed_at
