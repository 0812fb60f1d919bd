"""Changes as a report counts them, from records of a stream and from rows of an archive."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

import msgspec

from watcher.errors import WatcherError
from watcher.record.record import Record, changed_attributes
from watcher.report.summary import KINDS, Change, Key

_TTL: Final = "dynamodb.amazonaws.com"
_YEAR_2200: Final = 7_258_118_400
_wire_key: Final = msgspec.json.Decoder(dict[str, dict[str, str]])
_image: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


class UnreadableChangeError(WatcherError):
    """It is a change of a kind that is not known, or its key or images are not what they are."""


def of_record(record: Record) -> Change:
    """What a report looks at in a record. Raises UnreadableChangeError."""
    wire = record.wire
    change = wire.dynamodb
    try:
        return Change(
            _kind(wire.eventName),
            _known(change.ApproximateCreationDateTime),
            _key_of_wire(bytes(change.Keys)),
            changed_attributes(wire) if wire.eventName == "MODIFY" else None,
            record.expired_by_ttl,
            record.shard_id,
        )
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, WatcherError) as error:
        raise UnreadableChangeError(str(error)) from error


def of_row(row: Mapping[str, Any]) -> Change:
    """What a report looks at in a row of an archive. Raises UnreadableChangeError."""
    try:
        kind = _kind(row.get("event_name"))
        return Change(
            kind,
            _seconds(row.get("approximate_creation_time")),
            _key_of_json(row.get("keys") or ""),
            _changed(row.get("old_image"), row.get("new_image")) if kind == "MODIFY" else None,
            kind == "REMOVE" and _principal(row.get("user_identity")) == _TTL,
            row.get("shard_id") or "",
        )
    except (msgspec.DecodeError, UnicodeError, RecursionError, ValueError, TypeError) as error:
        raise UnreadableChangeError(str(error)) from error


def _kind(name: object) -> str:
    if name not in KINDS:
        raise UnreadableChangeError(f"unknown kind of change: {name!r}")
    return str(name)


def _known(seconds: float | None) -> float | None:
    """A time, unless it is one that nothing was ever changed at."""
    return seconds if seconds is not None and 0 < seconds < _YEAR_2200 else None


@lru_cache(maxsize=10_000)
def _key_of_wire(keys: bytes) -> Key:
    return tuple(
        sorted(
            (name, text)
            for name, value in (_wire_key.decode(keys) if keys else {}).items()
            for text in value.values()
        )
    )


@lru_cache(maxsize=10_000)
def _key_of_json(keys: str) -> Key:
    """Numbers keep their digits: all that is no text stays as it is written."""
    return tuple(sorted((name, _text(value)) for name, value in _image.decode(keys).items()))


def _text(value: msgspec.Raw) -> str:
    written = bytes(value)
    return msgspec.json.decode(value, type=str) if written[:1] == b'"' else written.decode()


def _changed(old: object, new: object) -> list[str] | None:
    if not isinstance(old, str) or not isinstance(new, str) or not old or not new:
        return None
    return list(_differing(_image.decode(old), _image.decode(new)))


def _differing(old: Mapping[str, msgspec.Raw], new: Mapping[str, msgspec.Raw]) -> Iterator[str]:
    for name in dict.fromkeys([*new, *old]):
        before, after = old.get(name), new.get(name)
        if before is None or after is None or _differ(before, after):
            yield name


def _differ(before: msgspec.Raw, after: msgspec.Raw) -> bool:
    """Maps may stand in another order, and are the same."""
    same = bytes(before) == bytes(after)
    return not same and bool(msgspec.json.decode(before) != msgspec.json.decode(after))


def _seconds(time: object) -> float | None:
    if isinstance(time, str) and time:
        time = datetime.fromisoformat(time)
    return _known(time.timestamp()) if isinstance(time, datetime) else None


def _principal(identity: object) -> object:
    """CSV knows no structs: there the principal stands alone."""
    return identity.get("principal_id") if isinstance(identity, Mapping) else identity
