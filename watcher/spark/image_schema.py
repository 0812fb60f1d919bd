"""The types of images: those of the user's `imageSchema`, and those of a sample of images."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from pyspark.sql import types
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    MapType,
    StringType,
    StructType,
)

from watcher.aws.model import WireItem, WireValue
from watcher.errors import UsageError

# Text in Spark's DDL


class _Token(msgspec.Struct, frozen=True):
    text: str
    at: int
    """Its place in the user's text, from 0 on."""

    @property
    def name(self) -> str:
        """The name without its backticks."""
        return self.text[1:-1].replace("``", "`") if self.text[0] == "`" else self.text


_TOKEN: Final = re.compile(r"\s*(`(?:[^`]|``)+`|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|\w+|\S)")
_NAME: Final = re.compile(r"`.*|\w+", re.DOTALL)
_DIGITS: Final = re.compile(r"(\d{1,2})(?:,(\d{1,2}))?", re.ASCII)
_TYPES: Final[Mapping[str, DataType]] = {
    "string": StringType(),
    "boolean": BooleanType(),
    "binary": BinaryType(),
    **dict.fromkeys(("tinyint", "byte"), types.ByteType()),
    **dict.fromkeys(("smallint", "short"), types.ShortType()),
    **dict.fromkeys(("int", "integer"), types.IntegerType()),
    **dict.fromkeys(("bigint", "long"), types.LongType()),
    **dict.fromkeys(("float", "real"), types.FloatType()),
    "double": types.DoubleType(),
    "date": types.DateType(),
    **dict.fromkeys(("timestamp", "timestamp_ltz"), types.TimestampType()),
    "timestamp_ntz": types.TimestampNTZType(),
}
_DECIMALS: Final = ("decimal", "dec", "numeric")
_UNFIT: Final = (
    *("char", "character", "varchar", "void", "variant"),
    *("interval", "time", "geometry", "geography"),
)
"""Types of Spark that no attribute can become: `refuse_unfit_types` refuses them."""
POSSIBLE: Final = (
    "string, boolean, binary, decimal, tinyint to bigint, float, double, timestamp, date, "
    "array, struct, map<string, …>"
)


def parsed(text: str) -> StructType:
    """Returns the struct whose fields are `pk string, total decimal(12,2)`.

    Raises UsageError, which points into the user's text: Spark's own error points into the DDL of
    all columns, and only Spark's driver can ask for it.
    """
    return _Ddl(text).struct()


class _Ddl:
    """Reads a list of fields, token by token."""

    def __init__(self, text: str) -> None:
        self._text = text
        found = _TOKEN.finditer(text.rstrip())
        self._tokens = [_Token(each[1], each.start(1)) for each in found]
        self._next = 0

    def struct(self) -> StructType:
        """Returns the struct of all fields. Raises UsageError."""
        return self._fields(end=None)

    def _peek(self) -> str:
        return self._tokens[self._next].text if self._next < len(self._tokens) else ""

    def _take(self) -> _Token:
        token = _Token(self._peek(), len(self._text))
        if self._next < len(self._tokens):
            token = self._tokens[self._next]
            self._next += 1
        return token

    def _skip(self, *texts: str) -> bool:
        if is_there := self._peek().lower() in texts:
            self._next += 1
        return is_there

    def _expect(self, text: str, after: str) -> None:
        token = self._take()
        if token.text != text:
            raise self._error(f"{text!r} is missing after {after}", token.at)

    def _fields(self, *, end: str | None) -> StructType:
        struct, names = StructType(), set[str]()
        while True:
            name = self._take()
            if not _NAME.fullmatch(name.text):
                raise self._error("a name is missing", name.at)
            if name.name.lower() in names:
                raise self._error(f"{name.name} is there twice (Pk and pk are one)", name.at)
            names.add(name.name.lower())
            self._skip(":")
            struct.add(name.name, self._type(name.name))
            if self._peek().lower() == "not":
                # Spark would believe it, and fail at the first image without the attribute.
                reason = f"an image may lack {name.name}: leave NOT NULL out"
                raise self._error(reason, self._take().at)
            if self._skip("comment"):
                self._take()
            if self._skip(","):
                continue
            token = self._take()
            if token.text == (end or ""):
                return struct
            what = f"before {token.text!r}" if token.text else "at the end"
            missing = f"a comma or {end!r}" if end else "a comma"
            raise self._error(f"{missing} is missing {what}", token.at)

    def _type(self, name: str) -> DataType:
        token = self._take()
        match kind := token.text.lower():
            case "struct":
                self._expect("<", kind)
                return StructType() if self._skip(">") else self._fields(end=">")
            case "array":
                self._expect("<", kind)
                array = ArrayType(self._type(name))
                self._expect(">", "the array's type")
                return array
            case "map":
                self._expect("<", kind)
                key = self._type(name)
                self._expect(",", "the map's key")
                found = MapType(key, self._type(name))
                self._expect(">", "the map's type")
                return found
            case _ if kind in _DECIMALS:
                return self._decimal()
            case _ if kind in _TYPES:
                if self._skip("collate"):
                    self._take()
                return _TYPES[kind]
            case _ if kind in _UNFIT:
                while self._peek() not in ("", ",", ">"):
                    self._take()
                return types.NullType()
        reason = f"{token.text!r} is not a type" if token.text else f"{name} has no type"
        raise self._error(reason, token.at, f"; possible are {POSSIBLE}")

    def _decimal(self) -> DecimalType:
        if not self._skip("("):
            return DecimalType()
        at, digits = self._tokens[self._next - 1].at, ""
        while self._peek() not in ("", ")"):
            digits += self._take().text
        self._expect(")", "the decimal's digits")
        found = _DIGITS.fullmatch(digits)
        precision, scale = map(int, found.groups("0")) if found else (0, 0)
        if not scale <= precision <= 38 or not precision:
            raise self._error("give decimal(DIGITS,SCALE) of up to 38 digits", at)
        return DecimalType(precision, scale)

    def _error(self, reason: str, at: int, hint: str = "") -> UsageError:
        place = f"{self._text[:at].rstrip()} >>> {self._text[at:]}".strip()
        return UsageError(f"{reason}, here: {place}{hint}")


def ddl_of(kind: DataType) -> str:
    """Returns a type as Spark's DDL; of a struct its fields alone."""
    if isinstance(kind, StructType):
        return ", ".join(f"{_quoted(field.name)}: {_nested(field.dataType)}" for field in kind)
    return _nested(kind)


def _nested(kind: DataType) -> str:
    match kind:
        case StructType():
            return f"struct<{ddl_of(kind)}>"
        case ArrayType():
            return f"array<{_nested(kind.elementType)}>"
        case MapType():
            return f"map<{_nested(kind.keyType)}, {_nested(kind.valueType)}>"
    return kind.simpleString()


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


# Types from a sample


# DynamoDB's numbers have 38 digits. A type can't change later: this one holds prices and counts.
_NUMBER: Final = DecimalType(38, 18)
_FIELDS_MAX: Final = 500
"""Of one struct: what has more has names that are data."""
_SCALARS: Final[Mapping[str, DataType]] = {
    "S": StringType(),
    "N": _NUMBER,
    "B": BinaryType(),
    "BOOL": BooleanType(),
    "SS": ArrayType(StringType()),
    "NS": ArrayType(_NUMBER),
    "BS": ArrayType(BinaryType()),
}


def grown(known: StructType, images: Iterable[WireItem]) -> StructType:
    """Returns the fields of a schema, and behind them one for each attribute that has none.

    A field never changes its type, except that a struct gets more fields. An attribute that has
    several types in the images becomes a string, which holds any of them.
    """
    found: dict[str, DataType | None] = {}
    for image in images:
        _merge_fields(found, image)
    return _grown(known, found)


def extended(known: StructType, more: StructType) -> StructType:
    """Returns the fields of a schema, and behind them those that only another one has."""
    return _grown(known, {field.name: field.dataType for field in more})


def _merge_fields(found: dict[str, DataType | None], image: WireItem) -> None:
    for name, value in image.items():
        kind = _type_of(value)
        if kind is not None:
            before = found.get(name)
            found[name] = kind if before is None else _merged(before, kind)


def _type_of(value: WireValue) -> DataType | None:
    """Returns the type of a value; None for one that tells nothing: NULL, an empty list."""
    ((kind, content),) = value.items()
    if kind in _SCALARS:
        return _SCALARS[kind]
    if kind == "M":
        fields: dict[str, DataType | None] = {}
        _merge_fields(fields, content)
        return _grown(StructType(), fields) if fields else None
    if kind == "L":
        merged: DataType | None = None
        for each in filter(None, map(_type_of, content)):
            merged = each if merged is None else _merged(merged, each)
        return None if merged is None else ArrayType(merged)
    return None


def _merged(one: DataType, other: DataType) -> DataType:
    if isinstance(one, StructType) and isinstance(other, StructType):
        return _grown(one, {field.name: field.dataType for field in other}, widens=True)
    if isinstance(one, ArrayType) and isinstance(other, ArrayType):
        return ArrayType(_merged(one.elementType, other.elementType))
    return one if one == other else StringType()


def _grown(
    known: StructType, found: Mapping[str, DataType | None], *, widens: bool = False
) -> StructType:
    """Returns a struct with more fields; `widens` where the known ones may become strings."""
    fields = {field.name: field.dataType for field in known}
    names = {name.lower() for name in fields}  # Spark takes Pk and PK for one
    for name in sorted(found):
        kind = found[name]
        if kind is None:
            continue
        if name in fields:
            fields[name] = _merged(fields[name], kind) if widens else _deepened(fields[name], kind)
        elif name and name.lower() not in names and len(fields) < _FIELDS_MAX:
            names.add(name.lower())
            fields[name] = kind
    whole = StructType()
    for name, kind in fields.items():
        whole.add(name, kind)
    return whole


def _deepened(known: DataType, found: DataType) -> DataType:
    """Returns a known type with the fields that its structs lack."""
    if isinstance(known, StructType) and isinstance(found, StructType):
        return _grown(known, {field.name: field.dataType for field in found})
    if isinstance(known, ArrayType) and isinstance(found, ArrayType):
        return ArrayType(_deepened(known.elementType, found.elementType))
    return known


# A schema in a file


_VERSION: Final = 1


def to_text(schema: StructType) -> str:
    """Returns a schema as a file keeps it: Spark's own JSON of it."""
    return json.dumps({"version": _VERSION, "image": schema.jsonValue()}, indent=1) + "\n"


def from_text(text: str) -> StructType:
    """Returns the schema of a file. Raises UsageError."""
    try:
        kept = json.loads(text)
        if kept["version"] > _VERSION:
            raise UsageError("written by a newer watcher: upgrade this one")
        return StructType.fromJson(kept["image"])
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"it holds no schema of dynamodb_streams: {error}") from None
