"""Converts records of a stream, and rows of an archive, to the changes that a report counts."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import DecimalException
from functools import lru_cache
from typing import Any, Final

import msgspec

from watcher.errors import WatcherError
from watcher.records.diff import changed_attributes, differing
from watcher.records.keys import key_of, number_text
from watcher.records.record import Record
from watcher.records.wire import KINDS
from watcher.report.summary import CountedChange, Key
from watcher.time_machine.archives import wire_value

_TTL: Final = "dynamodb.amazonaws.com"
_YEAR_2200: Final = 7_258_118_400
_image: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


class UnreadableChangeError(WatcherError):
    """Raised for a change of an unknown kind, or with a malformed key or image."""


def change_of_record(record: Record) -> CountedChange:
    """Returns the part of a record that a report counts. Raises UnreadableChangeError."""
    wire = record.wire
    change = wire.dynamodb
    try:
        return CountedChange(
            _kind(wire.eventName),
            _known(change.ApproximateCreationDateTime),
            _key_of_wire(bytes(change.Keys)),
            changed_attributes(wire) if wire.eventName == "MODIFY" else None,
            record.expired_by_ttl,
            record.shard_id,
        )
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, WatcherError) as error:
        raise UnreadableChangeError(str(error)) from error


def change_of_row(row: Mapping[str, Any]) -> CountedChange:
    """Returns the part of an archive's row that a report counts. Raises UnreadableChangeError."""
    try:
        kind = _kind(row.get("event_name"))
        identity = row.get("user_identity") or {}
        return CountedChange(
            kind,
            _seconds(row.get("approximate_creation_time")),
            _key_of_json(row.get("keys") or ""),
            _changed(row.get("old_image"), row.get("new_image")) if kind == "MODIFY" else None,
            kind == "REMOVE" and identity.get("principal_id") == _TTL,
            row.get("shard_id") or "",
        )
    except (
        msgspec.DecodeError,
        DecimalException,
        RecursionError,
        AttributeError,
        ValueError,
        TypeError,
    ) as error:
        raise UnreadableChangeError(str(error)) from error


def _kind(name: object) -> str:
    if name not in KINDS:
        raise UnreadableChangeError(f"unknown kind of change: {name!r}")
    return str(name)


def _known(seconds: float | None) -> float | None:
    """Returns a plausible time; None for one at which nothing can have been changed."""
    return seconds if seconds is not None and 0 < seconds < _YEAR_2200 else None


@lru_cache(maxsize=10_000)
def _key_of_wire(keys: bytes) -> Key:
    key = key_of(keys) if keys else {}
    return tuple(sorted((name, text) for name, value in key.items() for text in value.values()))


@lru_cache(maxsize=10_000)
def _key_of_json(keys: str) -> Key:
    """Returns a key of plain JSON; a number has its one text."""
    return tuple(sorted((name, _text(value)) for name, value in _image.decode(keys).items()))


def _text(value: msgspec.Raw) -> str:
    written = bytes(value)
    if written[:1] == b'"':
        return msgspec.json.decode(value, type=str)
    return number_text(written.decode())


def _changed(old: object, new: object) -> list[str] | None:
    if not isinstance(old, str) or not isinstance(new, str) or not old or not new:
        return None
    return list(differing(_image.decode(old), _image.decode(new), wire_value))


def _seconds(time: datetime | None) -> float | None:
    return None if time is None else _known(time.timestamp())
