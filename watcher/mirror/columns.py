"""A mirror's columns: they grow as attributes appear; values that fit in none are kept as JSON.

Or one column has the whole item.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec
import pyarrow as pa

from watcher.aws.model import WireItem, WireValue, typed
from watcher.declared import Opt
from watcher.errors import UsageError
from watcher.mirror.values import Converter, converter
from watcher.records.diff import normal_key
from watcher.records.plain_json import plain_json
from watcher.records.redaction import Redaction

RESCUED: Final = "_rescued_data"
"""The column of attributes that no other one holds, in DynamoDB's JSON."""
ITEM: Final = "item"
"""The column of the whole item, in plain JSON, where that is wanted."""
VARIANT: Final = "variant"
SQL_TYPE: Final = b"sql"
"""Names a column's type in its metadata, where Arrow has none."""

History = Annotated[
    bool, Opt("keep a row for every version of an item, with the time it was valid")
]
Columns = Annotated[
    str | None,
    Opt(
        "types of columns: 'total decimal(12,2), placed timestamp'; values set the others",
        "COLUMNS",
    ),
]
Baseline = Annotated[
    list[str] | None,
    Opt(
        "copy from a full export of the table, instead of a scan; repeat it for incremental ones",
        "EXPORT",
    ),
]
Once = Annotated[
    bool,
    Opt(
        "end when everything up to now is done",
        name="--no-follow",
        alias="--once",
        negative="--follow",
    ),
]
ItemForm = Annotated[
    str | None,
    Opt(
        "one column `item` instead of one for each attribute: json, or variant on spark",
        "FORM",
        choices=("json", VARIANT),
    ),
]
_COMMENT: Final = b"comment"
_KIND: Final = "DynamoDB "
_DECIMAL: Final = pa.decimal128(38, 18)
_GROWN: Final[Mapping[str, pa.DataType]] = {
    **dict.fromkeys(("S", "M", "L", "NS", "BS"), pa.string()),
    "N": _DECIMAL,
    "B": pa.binary(),
    "BOOL": pa.bool_(),
    "SS": pa.list_(pa.string()),
}
# What Parquet, Delta and SQL take as a column's name.
_NAME: Final = re.compile(r"[^ ,;{}()\n\t=.\"'`]{1,255}")
_OWN: Final = "__watcher_"
_OF_KEYS: Final = (
    pa.types.is_string,
    pa.types.is_binary,
    pa.types.is_integer,
    pa.types.is_decimal,
)
_COLUMNS_MAX: Final = 1_000

_item: Final[msgspec.json.Decoder[WireItem]] = msgspec.json.Decoder(WireItem)
# One text of an item, however a request ordered it: a comparison finds no difference.
_sorted: Final = msgspec.json.Encoder(order="sorted").encode


def item_of(image: bytes | msgspec.Raw) -> WireItem:
    """Returns an item from the wire's JSON."""
    return _item.decode(image)


def grown(name: str, kind: str) -> pa.Field:
    """Returns the column that grows from a value of an attribute; its comment has the type."""
    return pa.field(name, _GROWN[kind], metadata={_COMMENT: f"{_KIND}{kind}".encode()})


def kind_of(column: pa.Field) -> str:
    """Returns the one type of values that a column grew from; empty where a user has chosen it."""
    comment: str = (column.metadata or {}).get(_COMMENT, b"").decode()
    return comment.removeprefix(_KIND) if comment.startswith(_KIND) else ""


class MirrorColumns:
    """The columns of the attributes; every row has the `own` ones as well.

    `types` are those of the table's keys, `given` the columns whose types the user wants; with
    an `item_form`, only those, and one for the whole item. Raises UsageError for keys that can be
    no columns.
    """

    def __init__(
        self,
        types: Mapping[str, str],
        given: pa.Schema,
        own: Sequence[pa.Field],
        item_form: str | None = None,
    ) -> None:
        self.keys = list(types)
        self.item_form = item_form
        self._fields: dict[str, pa.Field] = {}
        self._converters: dict[str, Converter] = {}
        self._rest = ITEM if item_form else RESCUED
        self._reserved = {field.name.lower() for field in own} | {self._rest}
        self._used_names = set(self._reserved)
        for name, kind in types.items():
            if not self._may_be_column(name):
                raise UsageError(f"the key {name!r} can't be a column's name")
            field = given.field(name) if name in given.names else grown(name, kind)
            if not any(may_hold(field.type) for may_hold in _OF_KEYS):
                # Two texts of one time would be one row of two items.
                text = "a key's column is a string, a binary, an integer or a decimal"
                raise UsageError(text, "columns", f"{name} {field.type}")
            self._add(field)
        for field in given:
            if field.name not in self._fields:
                if not self._may_be_column(field.name):
                    raise UsageError("can't be a column's name", "columns", field.name)
                self._add(field)

    @property
    def schema(self) -> pa.Schema:
        """Returns the attributes' columns, and the one for values that fit in none, or for all."""
        in_sql = {SQL_TYPE: VARIANT} if self.item_form == VARIANT else None
        rest = pa.field(self._rest, pa.string(), metadata=in_sql)
        return pa.schema([*self._fields.values(), rest])

    def adopt(self, existing: pa.Schema) -> None:
        """Adopts the columns that the mirror has already.

        Raises UsageError where the user wants another type for one.
        """
        for field in existing:
            if field.name.lower() in self._reserved:
                continue
            ours = self._fields.get(field.name, field)
            if ours.type != field.type:
                raise UsageError(
                    f"column {field.name} is {field.type} in the mirror, and can't become "
                    f"{ours.type}: a schema can only grow; give another folder"
                )
            self._add(field)

    def lacking(self, rows: pa.Table) -> dict[str, str]:
        """Returns the attributes of rescued ones that may get a column, each with a type."""
        found: dict[str, str] = {}
        if self.item_form:
            return found
        for text in filter(None, rows[RESCUED].to_pylist()):
            item = item_of(text.encode())
            for name, value in item.items():
                if name not in self._fields and name not in found and self._may_be_column(name):
                    kind, _ = typed(value)
                    if kind != "NULL":
                        found[name] = kind
        return found

    def grow(self, found: Mapping[str, str]) -> None:
        """Adds columns for attributes that have none."""
        for name, kind in found.items():
            if self._may_be_column(name) and len(self._fields) < _COLUMNS_MAX:
                self._add(grown(name, kind))

    def rows(self, items: Sequence[WireItem]) -> dict[str, pa.Array]:
        """Returns the items' values by column."""
        values: dict[str, list[Any]] = {name: [None] * len(items) for name in self._fields}
        rests: list[str | None] = [None] * len(items)
        for index, item in enumerate(items):
            rest: dict[str, WireValue] = {}
            for name, value in item.items():
                if name in self.keys:
                    value = normal_key({name: value})[name]
                if self.item_form:
                    rest[name] = value
                if typed(value)[0] == "NULL":
                    continue
                found = self._value(name, value)
                if found is not None:
                    values[name][index] = found
                elif name in self.keys:
                    raise UsageError(
                        f"the key {name}={next(iter(value.values()))} does not fit in its column, "
                        f"{self._fields[name].type}: give --columns '{name} string'"
                    )
                else:
                    rest[name] = value
            if rest:
                text = _sorted(rest)
                rests[index] = plain_json([text])[0] if self.item_form else text.decode()
        made = {name: pa.array(values[name], field.type) for name, field in self._fields.items()}
        return {**made, self._rest: pa.array(rests, pa.string())}

    def _value(self, name: str, value: WireValue) -> object:
        field = self._fields.get(name)
        if field is None:
            return None
        kind = kind_of(field)
        return self._converters[name](value) if not kind or kind in value else None

    def _add(self, field: pa.Field) -> None:
        self._fields[field.name] = field
        self._converters[field.name] = converter(field.type)
        self._used_names.add(field.name.lower())

    def _may_be_column(self, name: str) -> bool:
        # Spark takes Pk and PK for one.
        free = name.lower() not in self._used_names and not name.startswith(_OWN)
        return free and _NAME.fullmatch(name) is not None


def redacted_types(types: Mapping[str, str], redaction: Redaction | None) -> Mapping[str, str]:
    """Returns the types of the key's attributes as a mirror has them. Raises UsageError."""
    if redaction is None:
        return types
    found = {name: redaction.key_type(name, kind) for name, kind in types.items()}
    for name, kind in found.items():
        if kind is None:
            raise UsageError(f"a mirror needs the items' keys: use {name}=hash", "redact")
    return {name: kind for name, kind in found.items() if kind is not None}


_SIMPLE: Final[Mapping[str, pa.DataType]] = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "date": pa.date32(),
}
_COLUMN: Final = re.compile(r"`?([^\s`,]+)`?\s+([a-z]+)(?:\(\s*(\d+)\s*,\s*(\d+)\s*\))?", re.I)


def given_columns(text: str | None) -> pa.Schema:
    """Returns `total decimal(12,2), placed timestamp` as columns. Raises UsageError."""
    fields: list[pa.Field] = []
    for part in re.split(r",(?![^(]*\))", text) if text else ():
        found = _COLUMN.fullmatch(part.strip())
        name, kind, digits, scale = found.groups() if found else (part.strip(), "", None, None)
        if name in (each.name for each in fields):
            raise UsageError("two types for one column", "columns", name)
        kind = kind.lower()
        if kind == "decimal" and digits and scale and 0 <= int(scale) <= int(digits) <= 38:
            fields.append(pa.field(name, pa.decimal128(int(digits), int(scale))))
        elif kind in _SIMPLE and not digits:
            fields.append(pa.field(name, _SIMPLE[kind]))
        else:
            possible = ", ".join([*_SIMPLE, "decimal(12,2)"])
            raise UsageError(f"give NAME TYPE, …; types are {possible}", "columns", part)
    return pa.schema(fields)
