"""Reads a mirror as a copy that `verify` compares."""

from __future__ import annotations

import decimal
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset
import pyarrow.parquet as pq

from watcher.aws.model import WireItem, WireValue
from watcher.errors import UsageError
from watcher.mirror.columns import ITEM, RESCUED, item_of, kind_of
from watcher.mirror.table import MirrorTable
from watcher.mirror.values import Converter, converter
from watcher.mirror.versions import OWN, TO
from watcher.records.diff import number_text
from watcher.streams import checkpoint_format
from watcher.time_machine.archives import parquet_batches
from watcher.time_machine.copied_items import Form, parsed_value, plain_value
from watcher.time_machine.copies import CopyPosition
from watcher.version import install

_Cell: TypeAlias = Any
"""A value of a row as pyarrow gives it: its column, which only a schema knows, has its type."""
_DIGITS: Final = 76
_JSON_KINDS: Final = ("M", "L", "NS", "BS")


class MirrorCopy:
    """The mirror in a folder, at its newest version. Raises UsageError if there is none."""

    form = Form.JSON
    columns: frozenset[str] | None = None

    def __init__(self, folder: str) -> None:
        mirror = MirrorTable(folder)
        state = mirror.state
        if state is None:
            raise UsageError("it is not a mirror", "with_", folder)
        if state.copied_at is None:
            raise UsageError("its copy is not finished: run mirror again first", "with_", folder)
        if state.made_as["redaction"]:
            text = "its values are redacted: it can't be compared with its table"
            raise UsageError(text, "with_", folder)
        self._history = state.made_as["history"] == "true"
        self.label = f"mirror at version {mirror.table.version()}"
        # Spark has the stream's position in its checkpoint: such a mirror may be behind.
        self.position = CopyPosition()
        if state.token is not None:
            self.position = CopyPosition(
                token=checkpoint_format.from_json(state.token),
                stored_at=mirror.stored_at,
                copied_at=state.copied_at,
            )
        self._parts = mirror.table.metadata().partition_columns
        self._rows = mirror.table.to_pyarrow_dataset()
        self._rest = ITEM if state.made_as["item"] else RESCUED
        fields = [each for each in mirror.schema if each.name not in (self._rest, *OWN)]
        self._kinds = {each.name: kind_of(each) for each in fields}
        # The columns whose types a user has chosen.
        self._chosen: dict[str, tuple[pa.DataType, Converter]] = {
            each.name: (each.type, converter(each.type))
            for each in fields
            if not self._kinds[each.name]
        }

    def items(self) -> Iterator[WireItem]:
        """Yields the items of its rows; of a mirror with `--history`, those of valid versions."""
        # A scan of the dataset would read up to 1 GB ahead of us, and keep the files' metadata.
        for fragment in self._rows.get_fragments():
            found = pyarrow.dataset.get_partition_keys(fragment.partition_expression)
            values = {name: found[name] for name in self._parts if name in found}
            source = fragment.filesystem.open_input_file(fragment.path)
            with source, pq.ParquetFile(source) as file:
                for batch in parquet_batches(file):
                    rows = _with_columns(batch, self._rows.schema, values)
                    if self._history:
                        rows = rows.filter(pc.is_null(rows[TO]))
                    yield from self._items(rows)

    def _items(self, rows: pa.RecordBatch) -> Iterator[WireItem]:
        columns = [_values(rows[name], kind) for name, kind in self._kinds.items()]
        for rest, *values in zip(rows[self._rest].to_pylist(), *columns, strict=True):
            item: dict[str, WireValue] = {}
            if rest and self._rest == ITEM:
                item.update(parsed_value(rest if isinstance(rest, str) else _text_of(rest))["M"])
            elif rest:
                item.update(item_of(rest.encode()))
            for name, value in zip(self._kinds, values, strict=True):
                if value is not None:
                    item[name] = value
            yield item

    def as_copied(self, item: WireItem) -> WireItem:
        """Returns an item as its row has it: without nulls, with the types that a user chose."""
        found = {name: value for name, value in item.items() if "NULL" not in value}
        for name, (kind, convert) in self._chosen.items():
            if name in found and (cell := convert(dict(found[name]))) is not None:
                found[name] = _value("", pa.scalar(cell, kind).as_py())
        return found


def _with_columns(
    rows: pa.RecordBatch, schema: pa.Schema, values: Mapping[str, _Cell]
) -> pa.RecordBatch:
    """Returns the rows with all columns of a table, of which an older file may lack some.

    `values` are those of the file's partition, which it lacks, too.
    """
    has = {*rows.schema.names}
    columns = [
        rows[each.name].cast(each.type)
        if each.name in has
        else pa.array([values.get(each.name)] * len(rows), each.type)
        for each in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema.names)


def _text_of(variant: Mapping[str, bytes]) -> str:
    """Returns a VARIANT as JSON, by the code that Spark has for it."""
    try:
        from pyspark.sql.types import VariantVal
    except ImportError:
        raise UsageError(f"reading a VARIANT needs Spark: {install('spark')}") from None
    with decimal.localcontext(decimal.Context(prec=_DIGITS)):  # it divides numbers
        return VariantVal(variant["value"], variant["metadata"]).toJson()


def _values(column: pa.Array, kind: str) -> list[WireValue | None]:
    """Returns a column's values in wire types; None where it has none."""
    if kind == "N" and pa.types.is_decimal(column.type) and column.type.scale > 0:
        # Most of what Python would do for each of them.
        texts = pc.utf8_rtrim(pc.utf8_rtrim(column.cast(pa.string()), "0"), ".")
        return [text and {kind: number_text(text)} for text in texts.to_pylist()]
    cells = column.to_pylist()
    if kind in ("S", "SS", "BOOL"):
        return [None if cell is None else {kind: cell} for cell in cells]
    return [None if cell is None else _value(kind, cell) for cell in cells]


def _value(kind: str, value: _Cell) -> WireValue:
    # A chosen column of text holds maps and lists as JSON, too.
    if kind in _JSON_KINDS or (not kind and isinstance(value, str) and value[:1] in ("{", "[")):
        return parsed_value(value)
    return plain_value(value)
