"""Opens a mirror by its path and format; reads it as a copy that `verify` compares."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow.dataset import FileSystemDataset

from watcher.aws.model import WireItem, WireValue
from watcher.errors import UsageError
from watcher.mirror.columns import KIND, item_of
from watcher.mirror.folder import Folder
from watcher.mirror.table import LIMITS, MirrorLimits, MirrorTable
from watcher.records.diff import number_text
from watcher.records.typed_values import RESCUED, Converter, converter
from watcher.streams import checkpoint_format
from watcher.time_machine.copied_items import Form, parsed_value, plain_value
from watcher.time_machine.copies import Copy, CopyPosition, parquet_batches
from watcher.version import install

Format: TypeAlias = Literal["delta", "iceberg"]

CATALOG: Final = "catalog.db"
"""The SQLite file in the folder of an Iceberg mirror that has no other catalog."""
_DELTA_LOG: Final = "_delta_log"
_NAME: Final = "default"


def open_mirror(
    to: str,
    limits: MirrorLimits = LIMITS,
    *,
    form: Format = "delta",
    catalog: str | None = None,
) -> MirrorTable:
    """Returns the mirror at a path, whether it exists already or not. Raises UsageError.

    With a catalog of PyIceberg's configuration, `to` is a table's name there.
    """
    if form == "delta":
        if catalog is not None:
            raise UsageError("it needs --format iceberg", "catalog")
        if Path(to, CATALOG).exists():
            raise UsageError(f"{to} has an Iceberg table: give --format iceberg, or another folder")
        if importlib.util.find_spec("deltalake") is None:
            raise UsageError(f"a Delta table needs delta-rs: {install('mirror')}", "format")
        from watcher.mirror.delta_table import DeltaMirror

        return DeltaMirror(to, Folder.at(to), limits)
    if Path(to, _DELTA_LOG).exists():
        raise UsageError(f"{to} has a Delta table: give another folder, or --format delta")
    return _iceberg(to, limits, catalog)


def found_format(path: Path) -> Format:
    """Returns the format of the mirror in a folder."""
    return "iceberg" if (path / CATALOG).exists() else "delta"


def _iceberg(to: str, limits: MirrorLimits, catalog: str | None) -> MirrorTable:
    if importlib.util.find_spec("pyiceberg") is None:
        raise UsageError(f"an Iceberg table needs PyIceberg: {install('iceberg')}", "format")
    from pyiceberg.catalog import load_catalog
    from pyiceberg.catalog.sql import SqlCatalog

    from watcher.mirror.iceberg_table import IcebergMirror

    if catalog is not None:
        *namespace, name = to.split(".")
        if not namespace:
            raise UsageError(f"{to!r} is not a catalog's table: give NAMESPACE.TABLE", "to")
        try:
            found = load_catalog(catalog)
        except ValueError as error:
            raise UsageError(str(error), "catalog", catalog) from None
        return IcebergMirror(to, found, (*namespace, name), limits=limits)
    if "://" in to:
        raise UsageError(f"an Iceberg table in {to} takes a --catalog that knows the place", "to")
    folder = Path(to).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    uri = f"sqlite:///{folder / CATALOG}"
    made = SqlCatalog(_NAME, uri=uri, warehouse=str(folder.parent))
    return IcebergMirror(to, made, (_NAME, folder.name), location=str(folder), limits=limits)


_SMALL: Final = 4 * 1024 * 1024
"""A smaller file is read by few calls, which counts in S3."""
_Cell: TypeAlias = Any
"""A value of a row as pyarrow gives it: its column, which only a schema knows, has its type."""
_JSON_KINDS: Final = ("M", "L", "NS", "BS")


class MirrorCopy:
    """The mirror in a folder, at its newest version. Raises UsageError if there is none."""

    form = Form.JSON
    columns = None

    def __init__(self, folder: str) -> None:
        mirror = open_mirror(folder, form=found_format(Path(folder)))
        state = mirror.state
        if state is None:
            raise UsageError("it is not a mirror", "with_", folder)
        if not state.copied:
            raise UsageError("its copy is not finished: run mirror again first", "with_", folder)
        if state.redaction:
            text = "its values are redacted: it can't be compared with its table"
            raise UsageError(text, "with_", folder)
        self._history = state.history
        self.label = f"mirror at version {mirror.version}"
        self.position = CopyPosition(
            token=checkpoint_format.from_json(state.token),
            stored_at=mirror.stored_at,
            copied_at=state.copied_at,
        )
        self._rows = mirror.rows()
        # The columns whose types a user has chosen.
        self._chosen: dict[str, tuple[pa.DataType, Converter]] = {
            field.name: (field.type, converter(field.type))
            for field in mirror.schema
            if KIND not in (field.metadata or {}) and field.name not in _own(self._history)
        }
        self._kinds = {
            field.name: (field.metadata or {}).get(KIND, b"").decode()
            for field in mirror.schema
            if field.name not in _own(self._history)
        }

    def items(self) -> Iterator[WireItem]:
        """Yields the items of its rows; of a mirror with `--history`, those of valid versions."""
        # A scan of the dataset would read up to 1 GB ahead of us, and keep the files' metadata.
        for fragment in self._rows.get_fragments():
            source = fragment.filesystem.open_input_file(fragment.path)
            with source, pq.ParquetFile(source, pre_buffer=source.size() < _SMALL) as file:
                for batch in parquet_batches(file):
                    rows = _with_columns(batch, self._rows.schema)
                    if self._history:
                        rows = rows.filter(pc.is_null(rows["_valid_to"]))
                    yield from _items(rows, self._kinds)

    def as_copied(self, item: WireItem) -> WireItem:
        """Returns an item as its row has it: without nulls, with the types that a user chose."""
        found = {name: value for name, value in item.items() if "NULL" not in value}
        for name, (kind, convert) in self._chosen.items():
            if name in found and (cell := convert(dict(found[name]))) is not None:
                found[name] = _value("", pa.scalar(cell, kind).as_py())
        return found

    def parts(self, count: int) -> Sequence[Copy]:
        """Returns parts of its files."""
        files = list(self._rows.get_fragments())
        parts = [copy(self) for _ in range(max(1, min(count, len(files))))]
        for number, part in enumerate(parts):
            some = files[number :: len(parts)]
            part._rows = FileSystemDataset(some, self._rows.schema, self._rows.format)
        return parts


def _with_columns(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Returns the rows with all columns of a table, of which an older file may lack some."""
    has = {*rows.schema.names}
    columns = [
        rows[each.name].cast(each.type) if each.name in has else pa.nulls(len(rows), each.type)
        for each in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema.names)


def _items(rows: pa.RecordBatch, kinds: Mapping[str, str]) -> Iterator[WireItem]:
    columns = [_values(rows[name], kind) for name, kind in kinds.items()]
    for rescued, *values in zip(rows[RESCUED].to_pylist(), *columns, strict=True):
        item: dict[str, WireValue] = {}
        if rescued:
            item.update(item_of(rescued.encode()))
        for name, value in zip(kinds, values, strict=True):
            if value is not None:
                item[name] = value
        yield item


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


def _own(history: bool) -> tuple[str, ...]:
    versions = ("_valid_from", "_valid_to", "_sequence_number") if history else ()
    return (RESCUED, *versions)


def _value(kind: str, value: _Cell) -> WireValue:
    # A chosen column of text holds maps and lists as JSON, too.
    if kind in _JSON_KINDS or (not kind and isinstance(value, str) and value[:1] in ("{", "[")):
        return parsed_value(value)
    return plain_value(value)
