"""A change as boto3's dict; its images are decoded when somebody first looks at them."""

from __future__ import annotations

import base64
import contextlib
import json
import re
import sys
from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import (
    Clamped,
    Context,
    Decimal,
    DecimalException,
    Inexact,
    Overflow,
    Rounded,
    Underflow,
)
from functools import lru_cache
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Final,
    Never,
    Protocol,
    TypeAlias,
)

import msgspec
from dateutil.tz import tzlocal
from msgspec import UNSET, UnsetType

from watcher.aws.json_text import mend
from watcher.aws.model import ShardKey, WireItem, WireValue, typed
from watcher.errors import WatcherError
from watcher.records.diff import ABSENT, Absent, changed_values, images_missing, to_number
from watcher.records.wire import (
    NO_IMAGE,
    TIME_TO_LIVE,
    WireChange,
    WireRecord,
    is_by_ttl,
    read_record,
)

if TYPE_CHECKING:
    from boto3.dynamodb.types import Binary

_LOCAL = tzlocal()
_IMAGES: Final = ("Keys", "NewImage", "OldImage")
_BINARY: Final = re.compile(rb'"BS?"')

_any_json = msgspec.json.Decoder()

NativeValue: TypeAlias = Any
"""An attribute's value as boto3 gives it; only the table's user knows what type it has."""

NativeItem: TypeAlias = dict[str, NativeValue]
"""An item, or a key, in native Python values, as boto3's deserializer makes them."""

Field: TypeAlias = Any
"""A field of boto3's record dict, whose name tells the type."""


@lru_cache(maxsize=256)  # neighbours are of the same second; more of them only take memory
def creation_time(seconds: float) -> datetime:
    """Converts epoch seconds as botocore's timestamp parser does: aware, in local time."""
    try:
        return datetime.fromtimestamp(seconds, _LOCAL)
    except (OverflowError, ValueError, OSError):  # an emulator's; no reason to stop
        return datetime.fromtimestamp(0, _LOCAL)


# boto3's own context and values, without boto3: to import it takes as long as all of watcher.
CONTEXT: Final = Context(
    Emin=-128, Emax=126, prec=38, traps=[Clamped, Overflow, Inexact, Rounded, Underflow]
)
_decimal: Final = CONTEXT.create_decimal


def _to_number(text: str) -> Decimal | str:
    try:
        return _decimal(text)
    except DecimalException:  # beyond boto3's 38 digits (DynamoDB Local's 1E40)
        return to_number(text)


def _to_binary(text: str) -> Binary:
    from boto3.dynamodb.types import Binary  # not before there is one

    return Binary(base64.b64decode(text))


def binary_of(value: object) -> bytes | None:
    """Returns the bytes of boto3's Binary; None for any other value."""
    types = sys.modules.get("boto3.dynamodb.types")  # without it there is no Binary
    return bytes(value.value) if types and isinstance(value, types.Binary) else None


def _to_map(attributes: WireItem) -> NativeItem:
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


def native(attribute: WireValue) -> NativeValue:
    """Converts a wire value (`{"N": "1"}`) as boto3's TypeDeserializer does (`Decimal(1)`)."""
    kind, content = typed(attribute)
    if kind in _NATIVE:
        return _NATIVE[kind](content)
    raise WatcherError(f"not a DynamoDB attribute value: {attribute!r}")


def native_item(raw: bytes | msgspec.Raw) -> NativeItem:
    """Converts an item's wire JSON to native values."""
    try:
        return _map_of(_typed_item.decode(raw))
    except (msgspec.DecodeError, DecimalException):  # an emulator's, which DynamoDB doesn't have
        return _to_map(_any_json.decode(raw))


class _Typed(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """An attribute value, its types in the order of `_NATIVE`, for a faster `native_item`.

    Structs take two thirds of the time of dicts.
    """

    S: str | UnsetType = UNSET
    N: str | UnsetType = UNSET
    B: str | UnsetType = UNSET
    BOOL: bool | UnsetType = UNSET
    NULL: bool | UnsetType = UNSET
    M: dict[str, _Typed] | UnsetType = UNSET
    L: list[_Typed] | UnsetType = UNSET
    SS: set[str] | UnsetType = UNSET
    NS: list[str] | UnsetType = UNSET
    BS: list[str] | UnsetType = UNSET


_typed_item = msgspec.json.Decoder(dict[str, _Typed])


def _map_of(values: Mapping[str, _Typed]) -> NativeItem:
    """Converts an item. Raises DecimalException for a number beyond boto3's 38 digits."""
    made: dict[str, Any] = {}
    for name, value in values.items():
        if (text := value.S) is not UNSET:
            made[name] = text
        elif (number := value.N) is not UNSET:
            made[name] = _decimal(number)
        else:
            made[name] = _other(value)
    return made


def _other(value: _Typed) -> NativeValue:
    """Converts a value that is no text and no number; the most frequent types come first."""
    if (truth := value.BOOL) is not UNSET:
        return truth
    if (attributes := value.M) is not UNSET:
        return _map_of(attributes)
    if (elements := value.L) is not UNSET:
        return [*_map_of({str(at): each for at, each in enumerate(elements)}).values()]
    if value.NULL is not UNSET:
        return None
    if (texts := value.SS) is not UNSET:
        return texts
    if value.B is not UNSET:
        return _to_binary(value.B)
    for kind in ("NS", "BS"):
        if (content := getattr(value, kind)) is not UNSET:
            return _NATIVE[kind](content)
    raise msgspec.DecodeError("an attribute without a value")


def _with_binary(attributes: WireItem, convert: Callable[[Any], object]) -> WireItem:
    """Converts the content of `B`, and of each member of `BS`: base64 text on the wire."""
    return {name: _value_with(value, convert) for name, value in attributes.items()}


def _value_with(attribute: WireValue, convert: Callable[[Any], object]) -> WireValue:
    for kind, value in attribute.items():
        if kind == "B":
            return {kind: convert(value)}
        if kind == "BS":
            return {kind: [convert(each) for each in value]}
        if kind == "M":
            return {kind: _with_binary(value, convert)}
        if kind == "L":
            return {kind: [_value_with(element, convert) for element in value]}
    return attribute


def wire_item(raw: bytes | msgspec.Raw) -> WireItem:
    """Converts an item's wire JSON to the form that botocore gives and takes: `B` as bytes."""
    image: WireItem = _any_json.decode(raw)
    # Most items hold no binary values: one search over the bytes spares them the walk.
    return _with_binary(image, base64.b64decode) if _BINARY.search(raw) else image


def image_of(item: WireItem) -> bytes:
    """Returns the wire JSON of an item in botocore's form; half a pair of surrogates is mended."""
    form = _with_binary(item, lambda each: base64.b64encode(each).decode())
    try:
        return msgspec.json.encode(form)
    except UnicodeEncodeError:
        return mend(json.dumps(form).encode())


def _after_filling(name: str) -> Callable[..., object]:
    """Returns a dict method that first makes all values."""
    method = getattr(dict, name)

    def call(self: _LazyDict, *args: object, **keywords: object) -> object:
        for each in (self, *args):
            if isinstance(each, _LazyDict):
                each.fill()
        return method(self, *args, **keywords)

    call.__name__ = name
    call.__doc__ = method.__doc__
    return call


_new: Final = dict.__new__
_put: Final = dict.setdefault


class _LazyDict(dict[str, Any]):
    """A dict that makes a value when it is first looked up, by `__missing__`.

    It is a real dict, so code written for boto3 (`isinstance`, `json.dumps`, `**`) works unchanged.
    To `json.dumps` a dict that holds nothing is `{}`, so one value is there from the beginning.
    """

    __slots__ = ("_unmade",)
    _unmade: WireChange | WireRecord | None
    """The wire record that values are decoded from on demand; None once all are decoded."""

    _NAMES: ClassVar[tuple[str, ...]]
    """The names of the values, in AWS's order."""

    def __missing__(self, name: str) -> Field:
        raise NotImplementedError

    def fill(self) -> None:
        """Makes all values."""
        if self._unmade is None:
            return
        held = dict(dict.items(self))
        dict.clear(self)
        for name in self._NAMES:
            if name in held:
                _put(self, name, held.pop(name))
            else:
                with contextlib.suppress(KeyError):
                    self.__missing__(name)
        dict.update(self, held)
        self._unmade = None

    def get(self, name: str, default: object = None) -> Field:
        """Works as dict.get, and makes only the one value that is asked for."""
        try:
            return self[name]
        except KeyError:
            return default

    def __contains__(self, name: object) -> bool:
        if dict.__contains__(self, name):
            return True
        value = getattr(self._unmade, str(name), None) if name in self._NAMES else None
        return value is not None and value is not NO_IMAGE


for _name in (
    *("__delitem__", "__eq__", "__iter__", "__len__", "__ne__", "__or__", "__repr__"),
    *("__reversed__", "__ror__", "clear", "copy", "items", "keys", "pop", "popitem"),
    *("setdefault", "values"),
):
    setattr(_LazyDict, _name, _after_filling(_name))


class Change(_LazyDict):
    """The `dynamodb` part of a record: each image is decoded when it is first looked up."""

    __slots__ = ()
    _unmade: WireChange | None
    _NAMES = (
        *("ApproximateCreationDateTime", "Keys", "NewImage", "OldImage"),
        *("SequenceNumber", "SizeBytes", "StreamViewType"),
    )

    def __missing__(self, name: str) -> Field:
        wire = self._unmade
        if wire is not None:
            if name in _IMAGES:
                raw = getattr(wire, name)
                if raw is not NO_IMAGE:
                    return _put(self, name, wire_item(raw))
            elif name == "ApproximateCreationDateTime":
                if wire.ApproximateCreationDateTime is not None:
                    return _put(self, name, creation_time(wire.ApproximateCreationDateTime))
            elif name in self._NAMES and (value := getattr(wire, name)) is not None:
                return _put(self, name, value)
        raise KeyError(name)

    def __reduce__(self) -> tuple[object, ...]:
        return dict, (dict(self),)


class RawRecords(Protocol):
    """The wire JSON of a page's records, by their index in it."""

    def __getitem__(self, index: int, /) -> msgspec.Raw: ...


class Record(_LazyDict):
    """One change of one item: boto3's record dict, with shorter ways to its contents.

    `record["eventName"]`, `record["dynamodb"]["Keys"]`, `…["NewImage"]` are what boto3's
    `get_records` gives: images in wire types (`{"S": "text"}`), `B` as bytes,
    `ApproximateCreationDateTime` an aware datetime. `key`, `old` and `new` hold native values.
    """

    __slots__ = ("_index", "_page", "_wire", "shard_key")
    _NAMES = (
        *("eventID", "eventName", "eventVersion", "eventSource", "awsRegion"),
        *("dynamodb", "userIdentity"),
    )
    _unmade: WireRecord | None
    _wire: WireRecord
    _page: RawRecords
    _index: int

    shard_key: ShardKey
    """The stream and the shard that the record was read from."""

    def __init__(self, *_: Never) -> None:
        """Refuses a dict: a record has its bytes."""
        raise TypeError("make a Record with watcher.testing.record(…), or with Record.from_json(…)")

    @classmethod
    def from_wire(
        cls, wire: WireRecord, page: RawRecords, index: int, shard_key: ShardKey
    ) -> Record:
        """Makes a record from its fields and its index in the page that holds its bytes."""
        record = _new(cls)
        record._unmade = record._wire = wire
        record._page = page
        record._index = index
        record.shard_key = shard_key
        if wire.eventName is None:
            record.fill()
        else:
            _put(record, "eventName", wire.eventName)
        return record

    def __missing__(self, name: str) -> Field:
        if self._unmade is not None:
            if name == "dynamodb":
                # Without a call: this runs for nearly every record. All but its number stays wire
                # bytes until somebody asks.
                change = _new(Change)
                change._unmade = wire = self._wire.dynamodb
                _put(change, "SequenceNumber", wire.SequenceNumber)
                return _put(self, name, change)
            if name in self._NAMES and (value := getattr(self._wire, name)) is not None:
                return _put(self, name, value)
        raise KeyError(name)

    @classmethod
    def from_json(cls, raw: bytes, shard_id: str = "", stream: str = "") -> Record:
        """A record from its wire JSON, as `--print-json` writes it; `stream` is its stream's ARN.

        Raises msgspec.DecodeError where `raw` is not a record.
        """
        shard_key = ShardKey(stream, shard_id)
        return cls.from_wire(read_record(raw), (msgspec.Raw(raw),), 0, shard_key)

    def as_it_came(self) -> Record:
        """Returns a fresh copy of the record, without later changes to it."""
        return self.from_wire(self._wire, self._page, self._index, self.shard_key)

    @property
    def shard_id(self) -> str:
        """The shard that the record was read from."""
        return self.shard_key.shard_id

    @property
    def stream(self) -> str:
        """The ARN of the stream that the record was read from; "" where that is not known."""
        return self.shard_key.stream

    @property
    def table(self) -> str:
        """The name of the table that was changed; "" where the stream is not known."""
        return self.shard_key.table

    @property
    def raw(self) -> msgspec.Raw:
        """The record's wire JSON, byte for byte."""
        return self._page[self._index]

    @property
    def wire(self) -> WireRecord:
        """The fields as they are on the wire, the images undecoded: the fastest to look at."""
        return self._wire

    @property
    def key(self) -> NativeItem:
        """The item's key attributes, as native values: `{"pk": "user-42"}`."""
        return self._native(self._wire.dynamodb.Keys) or {}

    @property
    def new(self) -> NativeItem | None:
        """The item after the change; None for a removal, or where the view type has no images."""
        return self._native(self._wire.dynamodb.NewImage)

    @property
    def old(self) -> NativeItem | None:
        """The item before the change; None for an insert, or where the view type has no images."""
        return self._native(self._wire.dynamodb.OldImage)

    @staticmethod
    def _native(raw: msgspec.Raw) -> NativeItem | None:
        return None if raw is NO_IMAGE else native_item(raw)

    @property
    def changes(self) -> dict[str, tuple[NativeValue, NativeValue]]:
        """Attribute → (old value, new value), for the attributes that differ; ABSENT where none.

        Empty where the stream's view type leaves out an image that the comparison takes.
        """
        return {
            name: (_native_if_any(old), _native_if_any(new))
            for name, (old, new) in (changed_values(self._wire) or {}).items()
        }

    @property
    def images_missing(self) -> bool:
        """True where the view type leaves out an image that this kind of change has."""
        return images_missing(self._wire)

    @property
    def created_at(self) -> datetime | None:
        """The time of the change, to the second (the service's ApproximateCreationDateTime)."""
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
        """True for a removal by DynamoDB's time-to-live, False for a caller's.

        https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/time-to-live-ttl-streams.html
        """
        return is_by_ttl(self._wire)

    def as_expired(self) -> Record:
        """Returns the same removal with the caller that DynamoDB names for time-to-live."""
        fields = msgspec.json.decode(self.raw, type=dict[str, msgspec.Raw])
        fields["userIdentity"] = msgspec.Raw(msgspec.json.encode(TIME_TO_LIVE))
        return Record.from_json(msgspec.json.encode(fields), self.shard_id, self.stream)

    def __reduce__(self) -> tuple[object, ...]:
        return Record.from_json, (bytes(self.raw), self.shard_id, self.stream)


def _native_if_any(value: WireValue | Absent) -> NativeValue:
    return ABSENT if isinstance(value, Absent) else native(value)
