"""The columns of a read: their names and types, and records as Arrow batches of them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
import pyarrow as pa
from msgspec import Raw
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    CharType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    VarcharType,
)

from watcher.aws.arns import table_name
from watcher.aws.model import WireItem, WireValue
from watcher.errors import UsageError, blame
from watcher.records import page as pages
from watcher.records import plain_json
from watcher.records.diff import changed_attributes_of, normal_keys
from watcher.records.typed_values import (
    RESCUED,
    DoesNotFitError,
    converter,
    may_hold_key,
    strict_converter,
)
from watcher.records.wire import WireChange, WireRecord
from watcher.spark import image_schema
from watcher.spark.image_schema import POSSIBLE
from watcher.spark.options import SourceOptions
from watcher.streams.messages import Page

_item: Final = msgspec.json.Decoder(WireItem)
_attributes: Final = msgspec.json.Decoder(list[dict[str, Raw] | None])
_ABSENT: Final = Raw()
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
_FILLED: Final = (
    *(StringType, BooleanType, BinaryType, DecimalType, IntegralType),
    *(FloatType, DoubleType, TimestampType, TimestampNTZType, DateType),
)

Shape: TypeAlias = "dict[str, Shape] | list[Shape] | str"
"""A struct's fields by name, a list around what an array or map holds, or a type's name."""


def columns(options: SourceOptions) -> dict[str, str]:
    """Returns the columns of a read, in their order, with their types in Spark's DDL."""
    if options.wire_records:
        wire = {"shard_id": "string", "record": "string"}
        if options.table_names or options.columns:
            wire["event_source_arn"] = "string"
        return _chosen(wire, options)
    whole = dict(_COLUMNS)
    if options.image_schema:
        whole["new_image"] = whole["old_image"] = f"struct<{options.image_schema}>"
    if options.changed_attributes:
        whole["changed_attributes"] = "array<string>"
    if options.image_schema:
        whole[RESCUED] = "string"
    return _chosen(whole, options)


def with_schema_of(options: SourceOptions, schema: StructType) -> SourceOptions:
    """Returns the options of a reader: an inferred schema is in the columns that Spark has."""
    if not options.infer_schema:
        return options
    images = [field.dataType for field in schema if field.name in ("new_image", "old_image")]
    text = image_schema.ddl_of(images[0]) if images else options.image_schema
    return msgspec.structs.replace(options, image_schema=text)


def _chosen(whole: dict[str, str], options: SourceOptions) -> dict[str, str]:
    if options.table_names:
        whole["table_name"] = "string"
    for name in options.columns or ():
        if name not in whole:
            near = difflib.get_close_matches(name, whole, 1) or [", ".join(whole)]
            raise UsageError(f"no column {name}; did you mean {near[0]}?", "columns")
    return {name: whole[name] for name in options.columns or whole}


def ddl(options: SourceOptions) -> str:
    """Returns the columns of a read as Spark's DDL. Raises UsageError for a bad `imageSchema`."""
    if options.image_schema is not None:
        with blame("imageSchema"):
            image_schema.parsed(options.image_schema)
    return ", ".join(f"{name} {kind}" for name, kind in columns(options).items())


# The types of images


def refuse_unfit_types(schema: StructType) -> None:
    """Raises UsageError for an image whose type, or a part of it, no attribute can become."""
    for field in schema:
        if field.name in ("new_image", "old_image"):
            _refuse_unfit(field.dataType, field.name)


def _refuse_unfit(kind: DataType, name: str) -> None:
    match kind:
        case StructType():
            for field in kind:
                _refuse_unfit(field.dataType, field.name)
        case ArrayType():
            _refuse_unfit(kind.elementType, name)
        case MapType() if type(kind.keyType) is StringType:
            _refuse_unfit(kind.valueType, name)
        # Its subclasses (varchar) are no strings for Arrow.
        case _ if isinstance(kind, CharType | VarcharType) or not isinstance(kind, _FILLED):
            raise UsageError(
                f"imageSchema: {name} can't be {kind.simpleString()}; possible are {POSSIBLE}"
            )


def image_shape(options: SourceOptions, schema: StructType) -> Shape | None:
    """Returns the shape of a query's images; None where no column has one."""
    images = [field.dataType for field in schema if field.name in ("new_image", "old_image")]
    if not images:
        return None
    return type_shape(images[0]) if options.image_schema else options.image_format


def type_shape(kind: DataType) -> Shape:
    """Returns a type as plain JSON values, as an offset keeps it."""
    match kind:
        case StructType():
            return {field.name: type_shape(field.dataType) for field in kind}
        case ArrayType():
            return [type_shape(kind.elementType)]
        case MapType():
            return ["map", type_shape(kind.valueType)]
    return kind.simpleString()


def refuse_changed_images(before: Shape | None, now: Shape | None) -> None:
    """Raises UsageError where a checkpoint's images have changed, except by new attributes.

    A reader of the query's files would find two shapes in them. `before` is None where the
    checkpoint does not tell, `now` where there are no images.
    """
    if before is None or now is None or before == now:
        return
    what = _difference(before, now, "")
    if what is not None:
        raise UsageError(
            f"imageSchema or imageFormat differs from the checkpoint's: {what}. You "
            "can only add attributes: change it back, or give another checkpoint"
        )


def _difference(before: Shape, now: Shape, path: str) -> str | None:
    """Returns the first difference that is no growth, in words."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for name, kind in before.items():
            inside = f"{path}.{name}" if path else name
            if name not in now:
                return f"{inside} is gone"
            if found := _difference(kind, now[name], inside):
                return found
        return None
    if isinstance(before, list) and isinstance(now, list) and before[:-1] == now[:-1]:
        return _difference(before[-1], now[-1], path)
    if before == now:
        return None
    return f"{path or 'an image'} was {_text(before)}, and is {_text(now)}"


def _text(shape: Shape) -> str:
    match shape:
        case dict():
            return "a struct"
        case ["map", inside]:
            return f"a map of {_text(inside)}"
        case [inside]:
            return f"an array of {_text(inside)}"
    return str(shape)


# Records as Arrow batches


def without(batch: pa.RecordBatch, *names: str) -> pa.RecordBatch:
    """Returns rows with nulls in these columns, where they are among theirs."""
    for name in names:
        index = batch.schema.get_field_index(name)
        if index >= 0:
            field = batch.schema.field(index)
            batch = batch.set_column(index, field, pa.nulls(len(batch), field.type))
    return batch


class _Changes(NamedTuple):
    """Records that become rows."""

    records: Sequence[WireRecord]
    changes: Sequence[WireChange]
    shard_id: str
    table: str


class ArrowEncoder:
    """Turns records into Arrow batches of a read's columns."""

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        self._wire_records = options.wire_records
        self._redaction = options.redaction
        self._text: Callable[[Sequence[bytes | msgspec.Raw]], list[str | None]] = (
            plain_json.plain_json if options.image_format == "json" else plain_json.wire_json
        )
        self._names: list[str] = schema.names
        self._typed: dict[str, TypedImages] = {
            field.name: TypedImages(field.type, whole=options.rescued_data == "all")
            for field in schema
            if field.name in _IMAGES and not pa.types.is_string(field.type)
        }
        self._has_right_keys = not self._typed

    def encode(self, page: Page, shard_id: str, arn: str = "") -> pa.RecordBatch:
        """Returns the records of a shard's page, in their order."""
        if self._wire_records:
            raws = pages.raw_records(page.body)[page.start : page.stop]
            if self._redaction is not None:
                raws = [msgspec.Raw(self._redaction.record(raw)) for raw in raws]
            made = {
                "shard_id": pa.repeat(shard_id, len(raws)),
                "record": _strings(plain_json.wire_json(raws)),
                "event_source_arn": pa.repeat(arn, len(raws)),
                "table_name": pa.repeat(table_name(arn), len(raws)),
            }
            return pa.RecordBatch.from_pydict({name: made[name] for name in self._names})
        records = page.records()
        if self._redaction is not None:
            records = list(map(self._redaction.wire, records))
        return self.encode_records(records, shard_id, table_name(arn))

    def encode_records(
        self, records: Sequence[WireRecord], shard_id: str, table: str
    ) -> pa.RecordBatch:
        """Returns records of a shard, in their order."""
        rows = _Changes(records, [record.dynamodb for record in records], shard_id, table)
        if not self._has_right_keys and records:
            self._refuse_wrong_keys(rows.changes[0].Keys)
        rests: dict[str, Rest] | None = {} if RESCUED in self._names else None
        made = {name: self._column(name, rows, rests) for name in self._names if name != RESCUED}
        if rests is not None:
            made[RESCUED] = _rescued(rests, len(records))
        return pa.RecordBatch.from_pydict({name: made[name] for name in self._names})

    def _column(self, name: str, rows: _Changes, rests: dict[str, Rest] | None) -> pa.Array:
        if name not in _IMAGES:
            return _MADE[name](rows)
        raws = list(map(_IMAGES[name], rows.changes))
        if name in self._typed:
            rest = None if rests is None else rests.setdefault(name, {})
            return self._typed[name].column(raws, rest)
        is_plain = self._text is plain_json.plain_json  # the wire form stays as it is
        return _strings(self._text(normal_keys(raws) if name == "keys" and is_plain else raws))

    def _refuse_wrong_keys(self, keys: Raw) -> None:
        """Raises UsageError where a key's column has a type that none of its values fits."""
        self._has_right_keys = True
        for name, value in _item.decode(keys or b"{}").items():
            (key_type,) = value
            for images in self._typed.values():
                refuse_wrong_key(images.kind, name, key_type)


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
    """Returns who made each change: DynamoDB itself, where an item expired; else null."""
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


def refuse_wrong_key(image: pa.StructType, name: str, key_type: str) -> None:
    """Raises UsageError where a table's key has a column that can't hold its type (S, N or B)."""
    index = image.get_field_index(name)
    if index >= 0 and not may_hold_key(image.field(index).type, key_type):
        raise UsageError(
            f"imageSchema: the key {name} has DynamoDB's type {key_type}, and "
            f"{image.field(index).type} holds none of those: make it {_KEY_HINTS[key_type]}"
        )


_KEY_HINTS: Final = {"S": "string", "N": "decimal(38,0), or string", "B": "binary"}


def _rescued(rests: Mapping[str, Rest], count: int) -> pa.Array:
    """Returns what images hold and their columns don't: `{"new_image": {"qty": {"N": "1.5"}}}`."""
    if not any(rests.values()):
        return pa.nulls(count, pa.string())
    found: list[str | None] = [None] * count
    for row in {row for rest in rests.values() for row in rest}:
        parts = {name: rest[row] for name, rest in rests.items() if row in rest}
        found[row] = msgspec.json.encode(parts).decode()
    return _strings(found)


# Images as typed columns


class _Attribute(msgspec.Struct, gc=False):
    """An attribute's value: one of these; none where there is no attribute."""

    S: str | None = None
    N: str | None = None
    BOOL: bool | None = None
    B: str | None = None
    SS: list[str] | None = None
    M: Raw = _ABSENT
    L: Raw = _ABSENT
    NS: Raw = _ABSENT
    BS: Raw = _ABSENT

    def wire(self) -> WireValue:
        """Returns it as it came; nothing for NULL."""
        for name in ("S", "N", "BOOL", "B", "SS"):
            if (content := getattr(self, name)) is not None:
                return {name: content}
        for name in ("M", "L", "NS", "BS"):
            if (raw := getattr(self, name)) is not _ABSENT:
                return {name: msgspec.json.decode(raw)}
        return {}


_NOTHING: Final = _Attribute()
Rest = dict[int, dict[str, Raw]]
"""Of images, by their places: the attributes that a column does not hold, as they came."""
_Column = Callable[[list[_Attribute], list[int]], pa.Array]
"""Makes a column of values, and adds the places of those that it holds in part only."""


class TypedImages:
    """Images as structs of some attributes; one that is absent, or not of its type, is null.

    Only these are decoded, all images at once, and made column by column. With `whole`, what they
    don't hold are also the attributes that have no field.
    """

    def __init__(self, kind: pa.StructType, *, whole: bool = False) -> None:
        self.kind = kind
        self._whole = whole
        # Attributes may have any name; a Python class's have not.
        names = {f"a{index}": field.name for index, field in enumerate(kind)}
        fields = [(name, _Attribute | None, None) for name in names]
        wanted: Any = msgspec.defstruct("Wanted", fields, rename=names, gc=False)
        only: Any = msgspec.defstruct(
            "Only", fields, rename=names, gc=False, forbid_unknown_fields=True
        )
        self._decode = msgspec.json.Decoder(list[wanted | None]).decode
        self._decode_only = msgspec.json.Decoder(list[only | None]).decode
        self._empty = wanted()
        self._columns = [
            (field.name, attrgetter(name), _column(field.type, whole=whole))
            for name, field in zip(names, kind, strict=True)
        ]

    def __reduce__(self) -> tuple[partial[TypedImages], tuple[pa.StructType]]:
        """Makes a new one on the executor: decoders can't be pickled."""
        return partial(TypedImages, whole=self._whole), (self.kind,)

    def column(self, raws: Sequence[Raw], rest: Rest | None = None) -> pa.Array:
        """Returns images (wire bytes, empty where there is none) as one column.

        What it does not hold is added to `rest`, where that is given.
        """
        text = b"[%b]" % b",".join([raw or b"null" for raw in raws])
        try:
            items = self._decoded(text, rest)
        except msgspec.ValidationError:  # an emulator's: {"N": 1}
            return self._one_by_one(raws, rest)
        missing = None
        if not all(items):
            missing = pa.array([item is None for item in items])
            items = [item or self._empty for item in items]
        columns = []
        for name, get, made in self._columns:
            values, in_part = list(map(get, items)), list[int]()
            column = made(values if all(values) else [each or _NOTHING for each in values], in_part)
            if rest is not None and (in_part or column.null_count > values.count(None)):
                _rescue(name, raws, {*in_part, *_lost(values, column)}, rest)
            columns.append(column)
        return pa.StructArray.from_arrays(columns, fields=list(self.kind), mask=missing)

    def _decoded(self, text: bytes, rest: Rest | None) -> list[object]:
        """Returns the images, and adds attributes that have no field to the rest."""
        if rest is None or not self._whole:
            return self._decode(text)
        try:
            return self._decode_only(text)
        except msgspec.ValidationError:
            items = self._decode(text)
        known = set(self.kind.names)
        for row, attributes in enumerate(_attributes.decode(text)):
            if attributes and not attributes.keys() <= known:
                rest[row] = {name: attributes[name] for name in attributes if name not in known}
        return items

    def _one_by_one(self, raws: Sequence[Raw], rest: Rest | None) -> pa.Array:
        convert = converter(self.kind)
        if rest is not None:
            make = partial(strict_converter, whole=self._whole)
            fields = {field.name: make(field.type) for field in self.kind}
            for row, raw in enumerate(raws):
                for name, value in _item.decode(raw or b"{}").items():
                    if not _fits(fields[name], value) if name in fields else self._whole:
                        _rescue(name, raws, {row}, rest)
        rows = [convert({"M": _item.decode(raw)}) if raw else None for raw in raws]
        return pa.array(rows, self.kind)


def _fits(convert: Callable[[WireValue], object], value: WireValue) -> bool:
    try:
        convert(value)
    except DoesNotFitError:
        return False
    return True


def _lost(values: list[_Attribute | None], column: pa.Array) -> list[int]:
    """Returns the places of values that are null in their column, and were not NULL."""
    if column.null_count == values.count(None):
        return []
    nulls = column.is_null().to_pylist()
    return [
        row
        for row, (value, is_null) in enumerate(zip(values, nulls, strict=True))
        if is_null and value is not None and value.wire()
    ]


def _rescue(name: str, raws: Sequence[Raw], rows: set[int], rest: Rest) -> None:
    for row in rows:
        (attributes,) = _attributes.decode(b"[%b]" % raws[row])
        rest.setdefault(row, {})[name] = (attributes or {})[name]


def _column(kind: pa.DataType, *, whole: bool) -> _Column:
    """Returns a column's maker: most values of a type all at once, the others one by one."""
    if pa.types.is_string(kind):
        return _texts
    if pa.types.is_boolean(kind):
        return lambda values, _: pa.array([value.BOOL for value in values], kind)
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return _numbers(kind)
    convert, convert_part = strict_converter(kind, whole=whole), converter(kind)

    def converted(value: _Attribute, row: int, in_part: list[int]) -> object:
        if value is _NOTHING:
            return None
        wire = value.wire()
        try:
            return convert(wire)
        except DoesNotFitError:
            in_part.append(row)
            return convert_part(wire)

    def one_by_one(values: list[_Attribute], in_part: list[int]) -> pa.Array:
        return pa.array([converted(each, row, in_part) for row, each in enumerate(values)], kind)

    def sets_of_text(values: list[_Attribute], in_part: list[int]) -> pa.Array:
        sets = [value.SS for value in values]
        if None not in sets:
            return pa.array(sets, kind)
        found = [
            converted(each, row, in_part) if each.SS is None else each.SS
            for row, each in enumerate(values)
        ]
        return pa.array(found, kind)

    is_of_text = pa.types.is_list(kind) and pa.types.is_string(kind.value_type)
    return sets_of_text if is_of_text else one_by_one


def _texts(values: list[_Attribute], in_part: list[int]) -> pa.Array:
    column = pa.array([value.S for value in values], pa.string())
    if not column.null_count:
        return column
    convert = converter(pa.string())
    found = [
        value.S if value.S is not None or value is _NOTHING else convert(value.wire())
        for value in values
    ]
    return pa.array(found, pa.string())


def _numbers(kind: pa.DataType) -> _Column:
    """Returns the maker of numbers: Arrow reads those that surely fit, as DynamoDB writes them."""
    convert = converter(kind)
    if pa.types.is_integer(kind):
        places, scale = len(str(2 ** (kind.bit_width - 1))) - 1, 0
    else:
        places, scale = kind.precision - kind.scale, kind.scale
    whole = rf"(?:0|[1-9][0-9]{{0,{places - 1}}})" if places else "0"
    fraction = rf"(?:\.[0-9]{{1,{scale}}})?" if scale else ""
    surely_fit = re.compile(rf"(?:-?{whole}{fraction} )*+").fullmatch

    def column(values: list[_Attribute], in_part: list[int]) -> pa.Array:
        digits = [value.N for value in values]
        found = [each for each in digits if each is not None]
        text = " ".join([*found, ""])
        if surely_fit(text) and text.count(" ") == len(found):
            return pa.array(digits, pa.string()).cast(kind)
        rows = [None if each is None else convert({"N": each}) for each in digits]
        return pa.array(rows, kind)

    return column
