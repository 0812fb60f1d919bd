"""An item's key: as a user gives it, and as the identity that tells items apart."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from watcher.errors import StreamError, UsageError
from watcher.records.diff import WireKey, normal_key, to_number
from watcher.records.filters import name_and_value
from watcher.records.record import Record
from watcher.records.wire import KeyValues, WireRecord

Identity: TypeAlias = tuple[tuple[str, str], ...]
"""A key's sorted names and values as text: the same from a stream and from an archive."""
_keys: Final = msgspec.json.Decoder(dict[str, dict[str, str]])
_shallow: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


def identity(keys: msgspec.Raw | bytes) -> Identity:
    """Returns an item's identity from its key's wire JSON."""
    return identity_of(_keys.decode(keys))


def identity_of(key: WireKey) -> Identity:
    """Returns an item's identity from its key."""
    normal = normal_key(key)
    return tuple(sorted((name, text) for name, value in normal.items() for text in value.values()))


def identity_in(image: bytes | msgspec.Raw, names: Iterable[str]) -> Identity:
    """Returns an item's identity from the whole item's wire JSON."""
    item = _shallow.decode(image)
    return identity_of({name: msgspec.json.decode(item[name]) for name in names})


def images_of(record: Record, purpose: str) -> tuple[bytes | None, bytes | None]:
    """Returns the item before and after a change, as the wire's JSON; None where there is none.

    Raises StreamError where an image is missing.
    """
    change = record.wire.dynamodb
    if record.images_missing and not removes_nothing(record):
        view = change.StreamViewType or "none"
        raise StreamError(
            f"a {record.event_name} lacks an image (view type {view}); NEW_AND_OLD_IMAGES is "
            f"needed to {purpose}"
        )
    return bytes(change.OldImage) or None, bytes(change.NewImage) or None


def removes_nothing(record: Record) -> bool:
    """Returns True for the removal of an item that never was, which some services report."""
    change = record.wire.dynamodb
    has_old_images = "OLD" in (change.StreamViewType or "")
    return record.event_name == "REMOVE" and has_old_images and not change.OldImage


def check_key_values(given: KeyValues, types: Mapping[str, str]) -> None:
    """Raises UsageError for names and values that don't fit a table's keys of these types."""
    for name, value in given.items() if isinstance(given, Mapping) else map(name_and_value, given):
        if name not in types:
            text = f"no such key attribute; the table has {', '.join(sorted(types))}"
            raise UsageError(text, "key", name)
        _text(name, value, types[name])


class ItemKey:
    """One item's key, as a user gives it: `PK=user-1`, `SK=order-2`, or a dict of native values.

    Raises UsageError for what can't be a key; a mistake about the table's keys shows only with the
    first record, or table description, that the key is compared with.
    """

    def __init__(self, given: KeyValues) -> None:
        pairs = given.items() if isinstance(given, Mapping) else map(name_and_value, given)
        self._given: dict[str, Any] = {}
        for name, value in pairs:
            if name in self._given:
                raise UsageError("give it once: this is about one item", "key", name)
            self._given[name] = value
        if not self._given:
            raise UsageError("give the item's whole key: --key NAME=VALUE for each of its parts")
        self._wire: WireKey | None = None
        self._identity: Identity = ()

    def wire(self, types: Mapping[str, str]) -> WireKey:
        """Returns the key of a table with keys of these types: `{"PK": "S"}`. Raises UsageError."""
        if self._wire is None:
            check_key_values(self._given, types)
            missing = [name for name in types if name not in self._given]
            if missing:
                names = " and ".join(types)
                text = f"an item's key is {names}: give {', '.join(missing)} as well"
                raise UsageError(text, "key", " ".join(f"{n}={v}" for n, v in self._given.items()))
            self._wire = {
                name: {kind: _text(name, self._given[name], kind)} for name, kind in types.items()
            }
            self._identity = identity_of(self._wire)
        return self._wire

    def matches_record(self, record: Record) -> bool:
        """Returns True for a record of this item."""
        return self._is(_keys.decode(record.wire.dynamodb.Keys))

    def matching_indexes(self, records: Sequence[WireRecord]) -> list[int]:
        """Returns the indexes of the records of this item."""
        keys = (_keys.decode(record.dynamodb.Keys) for record in records)
        return [index for index, key in enumerate(keys) if self._is(key)]

    def matches_image(self, image: msgspec.Raw) -> bool:
        """Returns True for this item, given whole or by its key in the wire's JSON."""
        item = _shallow.decode(image)
        names = self._wire or self._given
        return all(name in item for name in names) and self._is(
            {name: msgspec.json.decode(item[name]) for name in names}
        )

    def _is(self, keys: WireKey) -> bool:
        if self._wire is None:
            self.wire({name: kind for name, value in keys.items() for kind in value})
        return identity_of(keys) == self._identity


def _text(name: str, value: object, kind: str) -> str:
    """Returns a key's value of this type, as the wire has it. Raises UsageError."""
    if kind == "B" and isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    text = str(value)
    if kind == "N" and isinstance(to_number(text), str):
        raise UsageError(f"{name} is a number", "key", f"{name}={text}")
    if kind == "B":
        try:
            base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            raise UsageError(f"{name} is binary: give base64", "key", f"{name}={text}") from None
    return text
