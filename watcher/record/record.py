"""One change: the mapping that boto3 gives, with its images decoded only when looked at."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, Protocol

import msgspec
from boto3.dynamodb.types import DYNAMODB_CONTEXT, Binary
from dateutil.tz import tzlocal

from watcher.errors import WatcherError

_LOCAL = tzlocal()
_IMAGES: Final = ("Keys", "NewImage", "OldImage")
_RAW_NOTHING: Final = msgspec.Raw()
_BINARY: Final = re.compile(rb'"BS?"')


class WireChange(msgspec.Struct, gc=False):
    """The `dynamodb` part of a record as it is on the wire, images undecoded."""

    SequenceNumber: str
    ApproximateCreationDateTime: float | None = None
    Keys: msgspec.Raw = _RAW_NOTHING
    NewImage: msgspec.Raw = _RAW_NOTHING
    OldImage: msgspec.Raw = _RAW_NOTHING
    SizeBytes: int | None = None
    StreamViewType: str | None = None


class WireRecord(msgspec.Struct, gc=False):
    """A record as it is on the wire; what the service leaves out stays None."""

    dynamodb: WireChange
    eventID: str | None = None
    eventName: str | None = None
    eventVersion: str | None = None
    eventSource: str | None = None
    awsRegion: str | None = None
    userIdentity: dict[str, str] | None = None


_wire_record = msgspec.json.Decoder(WireRecord)
_any_json = msgspec.json.Decoder()
_shallow: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


class RawRecords(Protocol):
    """The bytes of a page's records, by their place in it."""

    def __getitem__(self, place: int, /) -> msgspec.Raw: ...


class Absent:
    """The type of ABSENT, the value of an attribute that an item does not have."""

    def __repr__(self) -> str:
        return "ABSENT"

    def __bool__(self) -> bool:
        return False


ABSENT: Final = Absent()


@lru_cache(maxsize=4096)
def creation_time(seconds: float) -> datetime:
    """Epoch seconds as botocore's timestamp parser gives them: aware, in local time."""
    try:
        return datetime.fromtimestamp(seconds, _LOCAL)
    except (OverflowError, ValueError, OSError):  # not from DynamoDB; no reason to stop
        return datetime.fromtimestamp(0, _LOCAL)


def _to_number(text: str) -> Any:
    return DYNAMODB_CONTEXT.create_decimal(text)


def _to_binary(text: str) -> Binary:
    return Binary(base64.b64decode(text))


def _to_map(attributes: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {name: native(value) for name, value in attributes.items()}


# boto3.dynamodb.types.TypeDeserializer's rules, starting from the wire form.
_NATIVE: Final[dict[str, Callable[[Any], Any]]] = {
    "S": str,
    "N": _to_number,
    "B": _to_binary,
    "BOOL": bool,
    "NULL": lambda _: None,
    "M": _to_map,
    "L": lambda values: [native(value) for value in values],
    "SS": set,
    "NS": lambda values: {_to_number(value) for value in values},
    "BS": lambda values: {_to_binary(value) for value in values},
}


def native(attribute: Mapping[str, Any]) -> Any:
    """A wire attribute value (`{"N": "1"}`) as boto3's TypeDeserializer gives it (`Decimal(1)`)."""
    for kind, value in attribute.items():
        if kind in _NATIVE:
            return _NATIVE[kind](value)
    raise WatcherError(f"not a DynamoDB attribute value: {attribute!r}")


def _with_bytes(attributes: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The same attributes with base64 text turned into bytes, as botocore gives `B` and `BS`."""
    return {name: _value_with_bytes(value) for name, value in attributes.items()}


def _value_with_bytes(attribute: dict[str, Any]) -> dict[str, Any]:
    for kind, value in attribute.items():
        if kind == "B":
            return {kind: base64.b64decode(value)}
        if kind == "BS":
            return {kind: [base64.b64decode(text) for text in value]}
        if kind == "M":
            return {kind: _with_bytes(value)}
        if kind == "L":
            return {kind: [_value_with_bytes(element) for element in value]}
    return attribute


def wire_item(raw: bytes | msgspec.Raw) -> dict[str, dict[str, Any]]:
    """An item's wire JSON as botocore gives it, and takes it: `B` as bytes."""
    image: dict[str, dict[str, Any]] = _any_json.decode(raw)
    # Most items hold no binary values: one search over the bytes spares them the walk.
    return _with_bytes(image) if _BINARY.search(raw) else image


def _after_filling(name: str) -> Callable[..., Any]:
    """A dict method that first fills in what is still undecoded."""
    method = getattr(dict, name)

    def call(self: Change, *args: Any, **keywords: Any) -> Any:
        for change in (self, *args):
            if isinstance(change, Change):
                change.fill()
        return method(self, *args, **keywords)

    call.__name__ = name
    call.__doc__ = method.__doc__
    return call


_FILLED: Final = WireChange(SequenceNumber="")


class Change(dict[str, Any]):
    """`record["dynamodb"]`: a dict that decodes an image when it is first looked up.

    It is a real dict, so code written for boto3 (`isinstance`, `json.dumps`, `**`) works unchanged.
    """

    __slots__ = ("_wire",)
    _wire: WireChange

    @classmethod
    def from_wire(cls, wire: WireChange) -> Change:
        """The plain fields at once; the images stay wire bytes until somebody asks."""
        change = cls(SequenceNumber=wire.SequenceNumber)
        change._wire = wire
        if wire.ApproximateCreationDateTime is not None:
            created = creation_time(wire.ApproximateCreationDateTime)
            change["ApproximateCreationDateTime"] = created
        if wire.SizeBytes is not None:
            change["SizeBytes"] = wire.SizeBytes
        if wire.StreamViewType is not None:
            change["StreamViewType"] = wire.StreamViewType
        return change

    def __missing__(self, name: str) -> Any:
        if name in _IMAGES and not dict.__contains__(self, name):
            raw = getattr(self._wire, name)
            if raw is not _RAW_NOTHING:
                image = wire_item(raw)
                self[name] = image
                return image
        raise KeyError(name)

    def fill(self) -> None:
        """Decode what is still undecoded; from then on this is a dict like any other."""
        for name in _IMAGES:
            if getattr(self._wire, name) is not _RAW_NOTHING and not dict.__contains__(self, name):
                self.__missing__(name)
        self._wire = _FILLED

    def get(self, name: str, default: Any = None) -> Any:
        """As dict.get, decoding only the one image that is asked for."""
        try:
            return self[name]
        except KeyError:
            return default

    def __contains__(self, name: object) -> bool:
        return dict.__contains__(self, name) or (
            name in _IMAGES and getattr(self._wire, str(name)) is not _RAW_NOTHING
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)


for _name in (
    *("__delitem__", "__eq__", "__iter__", "__len__", "__ne__", "__or__", "__repr__"),
    *("__reversed__", "__ror__", "clear", "copy", "items", "keys", "pop", "popitem"),
    *("setdefault", "values"),
):
    setattr(Change, _name, _after_filling(_name))


class Record(dict[str, Any]):
    """One change of one item: boto3's record dict, and shorter ways to what is in it.

    `record["eventName"]`, `record["dynamodb"]["Keys"]`, `…["NewImage"]` are what boto3's
    `get_records` gives: images in wire types (`{"S": "text"}`), `B` as bytes,
    `ApproximateCreationDateTime` an aware datetime. `key`, `old` and `new` hold native values.
    """

    __slots__ = ("_page", "_place", "_wire", "shard_id")
    _wire: WireRecord
    _page: RawRecords
    _place: int

    shard_id: str
    """The shard that the record was read from."""

    @classmethod
    def from_wire(cls, wire: WireRecord, page: RawRecords, place: int, shard_id: str) -> Record:
        """A record from its fields, and its place in the page that they came from."""
        record = cls()
        record["dynamodb"] = Change.from_wire(wire.dynamodb)
        record._wire = wire
        record._page = page
        record._place = place
        record.shard_id = shard_id
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
    def from_json(cls, raw: bytes, shard_id: str = "") -> Record:
        """A record from its wire JSON, as `--print-json` writes it.

        Raises msgspec.DecodeError where `raw` is not a record.
        """
        return cls.from_wire(_wire_record.decode(raw), (msgspec.Raw(raw),), 0, shard_id)

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
        return None if raw is _RAW_NOTHING else _to_map(_any_json.decode(raw))

    @property
    def changes(self) -> dict[str, tuple[Any, Any]]:
        """Attribute → (old value, new value), for the attributes that differ; ABSENT where none.

        Empty where the stream's view type doesn't carry the images that it takes to tell.
        """
        if self.images_missing:
            return {}
        old, new = self.old or {}, self.new or {}
        return {
            name: (old.get(name, ABSENT), new.get(name, ABSENT))
            for name in _in_order(new, old)
            if not _same(old.get(name, ABSENT), new.get(name, ABSENT))
        }

    @property
    def images_missing(self) -> bool:
        """Whether an image that this kind of change should have is missing (by the view type)."""
        change, kind = self._wire.dynamodb, self._wire.eventName
        no_new = change.NewImage is _RAW_NOTHING and kind != "REMOVE"
        no_old = change.OldImage is _RAW_NOTHING and kind != "INSERT"
        return no_new or no_old

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
        who = self._wire.userIdentity or {}
        kind = who.get("type", who.get("Type"))
        principal = who.get("principalId", who.get("PrincipalId"))
        return kind == "Service" and principal == "dynamodb.amazonaws.com"

    def __reduce__(self) -> tuple[Any, ...]:
        return Record.from_json, (bytes(self.raw), self.shard_id)


def _same(old: Any, new: Any) -> bool:
    """Equality as DynamoDB has it: to Python, True is 1."""
    if type(old) is not type(new):
        return False
    if isinstance(old, dict):
        return old.keys() == new.keys() and all(_same(old[name], new[name]) for name in old)
    if isinstance(old, list):
        return len(old) == len(new) and all(map(_same, old, new))
    return bool(old == new)


def _in_order(first: Iterable[str], second: Iterable[str]) -> Iterator[str]:
    yield from dict.fromkeys([*first, *second])


def changed_attributes(record: WireRecord) -> list[str] | None:
    """The names of the attributes that differ; None where the view type's images can't tell."""
    change, kind = record.dynamodb, record.eventName
    if not bytes(change.NewImage) and kind != "REMOVE":
        return None
    if not bytes(change.OldImage) and kind != "INSERT":
        return None
    new = _shallow.decode(change.NewImage) if bytes(change.NewImage) else {}
    old = _shallow.decode(change.OldImage) if bytes(change.OldImage) else {}
    return [name for name in dict.fromkeys([*new, *old]) if _differ(old.get(name), new.get(name))]


def _differ(old: msgspec.Raw | None, new: msgspec.Raw | None) -> bool:
    if old is None or new is None:
        return True
    # Equal bytes are equal values; unequal ones may still be a set in another order.
    if bytes(old) == bytes(new):
        return False
    return bool(native(msgspec.json.decode(old)) != native(msgspec.json.decode(new)))
