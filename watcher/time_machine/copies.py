"""Copies of a table that can be compared with it: another table, files, SQLite."""

from __future__ import annotations

import csv
import gzip
import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, Protocol, TypeVar, cast
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec

from watcher.aws.json_text import mend, read
from watcher.aws.model import WireItem
from watcher.aws.tables import ReadPace
from watcher.errors import UsageError
from watcher.streams.checkpoint_format import Token
from watcher.time_machine.copied_items import Form, plain_value
from watcher.time_machine.sources import source_path
from watcher.time_machine.table import TableHandle, TablePart
from watcher.version import install

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyarrow.parquet import ParquetFile

_Value = TypeVar("_Value")

_BATCH: Final = 2_000
_BATCH_BYTES: Final = 4 * 1024 * 1024
_LONGEST_CELL: Final = 2**31 - 1
_item: Final = msgspec.json.Decoder(dict[str, dict[str, Any]])


def item_of_image(image: bytes | msgspec.Raw) -> WireItem:
    """Returns an item of the wire's JSON."""
    return read(_item, image)


class CopyPosition(msgspec.Struct, frozen=True, kw_only=True):
    """The part of the stream that is in a copy; unknown with neither a token nor a time."""

    token: Token | None = None
    """The positions up to which all changes are in it."""
    stored_at: datetime | None = None
    """The time when the token was stored, by the clock of the machine that stored it."""
    copied_at: datetime | None = None
    """The time until which its items were first copied: it may have changes up to then as well."""
    at: datetime | None = None
    """The second whose end it shows."""


class Copy(Protocol):
    """A copy of a table."""

    @property
    def label(self) -> str:
        """The copy's name in the report: `mirror at version 41`."""

    @property
    def form(self) -> Form:
        """The part of a value's type that the copy keeps."""

    @property
    def columns(self) -> frozenset[str] | None:
        """The attributes that it can hold; None where that is any. Known once it is read."""

    @property
    def position(self) -> CopyPosition:
        """The part of the stream that the copy holds."""

    def items(self) -> Iterator[WireItem]:
        """Yields its items. Raises UsageError, StreamError."""

    def as_copied(self, item: WireItem) -> WireItem:
        """Returns an item of the table as this copy would have it."""

    def parts(self, count: int) -> Sequence[Copy]:
        """Returns at least one part, about so many where it has as many, for other processes."""


class TableCopy:
    """Another table of DynamoDB, as it is now."""

    form = Form.WIRE
    columns = None
    position = CopyPosition()

    def __init__(self, table: TableHandle, label: str, read_limit: float | None = None) -> None:
        self.table = table
        self.label = label
        self._read_limit = read_limit

    def items(self) -> Iterator[WireItem]:
        """Yields its items."""
        table, pace = self.table, ReadPace(self._read_limit, self.table.clock)
        for page in table.tables.scan(table.name, 0, 1, on_units=pace.on_units):
            yield from map(_item.decode, page)

    def as_copied(self, item: WireItem) -> WireItem:
        """Returns the item."""
        return item

    def parts(self, count: int) -> Sequence[Copy]:
        """Returns the segments of a scan."""
        parts = self.table.parts(count, self._read_limit)
        return [_TableCopyPart(each, self.label) for each in parts]


class _TableCopyPart(TableCopy):
    """A segment of another table."""

    def __init__(self, part: TablePart, label: str) -> None:
        self.label = label
        self._part = part

    def items(self) -> Iterator[WireItem]:
        """Yields its items."""
        for page in self._part.pages():
            yield from map(_item.decode, page)


class AttributeNames:
    """The attributes of a copy's columns; `columns` are those with another name there.

    A column that only has the name of such an attribute is something else, and left out.
    """

    def __init__(self, columns: Mapping[str, str]) -> None:
        self._attributes = {column: attribute for attribute, column in columns.items()}
        self._others = columns.keys() - self._attributes.keys()

    def attributes(self, row: Mapping[str, _Value]) -> dict[str, _Value]:
        """Returns a row's values by the attributes' names."""
        return {
            self._attributes.get(name, name): value
            for name, value in row.items()
            if name not in self._others
        }


class FileCopy:
    """A folder, or a file, of Parquet, JSON lines or CSV; JSON lines may be DynamoDB's own.

    `names` are the columns of attributes that have another name there.
    """

    def __init__(self, path: Path, names: Mapping[str, str], at: datetime | None) -> None:
        self.label = str(path)
        self.position = CopyPosition(at=at)
        self.columns: frozenset[str] | None = None
        self._names = AttributeNames(names)
        self._files, self._kind = _files_of(path)
        is_wire = self._kind == "jsonl" and _is_wire(self._files)
        lines_form = Form.WIRE if is_wire else Form.JSON
        self.form = lines_form if self._kind == "jsonl" else Form.TEXT

    def items(self) -> Iterator[WireItem]:
        """Yields its items."""
        for path in self._files:
            try:
                if self._kind == "parquet":
                    yield from self._parquet(path)
                elif self._kind == "csv":
                    yield from self._csv(path)
                else:
                    with _opened(path) as file:
                        yield from (self._line(line) for line in file if line.strip())
            except (OSError, EOFError, ValueError, csv.Error) as error:
                text = (str(error).splitlines() or [type(error).__name__])[0]
                raise UsageError(f"can't read {path}: {text}", "with_") from None

    def as_copied(self, item: WireItem) -> WireItem:
        """Returns the item; a cell of CSV does not tell an empty text from nothing."""
        if self._kind != "csv":
            return item
        return {
            name: value
            for name, value in item.items()
            if "" not in (value.get("S"), value.get("B"))
        }

    def parts(self, count: int) -> Sequence[Copy]:
        """Returns parts of its files."""
        parts = [copy(self) for _ in range(min(count, len(self._files)))]
        for number, part in enumerate(parts):
            part._files = [each.absolute() for each in self._files[number :: len(parts)]]
        return parts

    def _parquet(self, path: Path) -> Iterator[WireItem]:
        try:
            import pyarrow.parquet
        except ImportError:
            raise UsageError(f"reading Parquet needs pyarrow: {install('spark')}") from None
        with pyarrow.parquet.ParquetFile(path, pre_buffer=False) as file:
            self._has(file.schema_arrow.names)
            for batch in parquet_batches(file):
                yield from map(self._item, batch.to_pylist())

    def _csv(self, path: Path) -> Iterator[WireItem]:
        csv.field_size_limit(_LONGEST_CELL)  # the whole process's: Python has no other
        with _opened(path) as file:
            rows = csv.reader(file)
            names = next(rows, [])
            if twice := [name for name, count in Counter(names).items() if count > 1]:
                raise ValueError(f"two columns are called {twice[0]}")
            self._has(names)
            for row in rows:
                if len(row) > len(names):
                    cells = f"{len(row)} cells, and the header {len(names)}"
                    raise ValueError(f"line {rows.line_num} has {cells}")
                if row:
                    pairs = zip(names, row, strict=False)
                    yield self._item({name: text for name, text in pairs if text})

    def _has(self, columns: Iterable[str]) -> None:
        names = self._names.attributes(dict.fromkeys(columns))
        self.columns = frozenset(names) | (self.columns or frozenset())

    def _line(self, line: str) -> WireItem:
        if "\\ud" in line.lower():  # half a surrogate pair: the table's is read without it, too
            line = mend(line.encode()).decode()
        if self.form is not Form.WIRE:
            row = json.loads(line, parse_float=Decimal, parse_int=Decimal)
            if not isinstance(row, dict):
                raise ValueError("a line is not an item: give one object a line")
            if _is_wire_item(row):
                raise ValueError(_TWO_FORMS)
            return self._item(row)
        try:
            item = _item.decode(line)
        except msgspec.ValidationError:
            raise ValueError(_TWO_FORMS) from None
        return self._names.attributes(item)

    def _item(self, row: Mapping[str, object]) -> WireItem:
        values = self._names.attributes(row)
        return {name: plain_value(value) for name, value in values.items()}


def parquet_batches(file: ParquetFile) -> Iterator[RecordBatch]:
    """Yields a file's rows, some megabytes at a time."""
    about = file.metadata
    size = sum(about.row_group(at).total_byte_size for at in range(about.num_row_groups))
    fit = _BATCH_BYTES * about.num_rows // max(1, size)
    yield from file.iter_batches(max(1, min(_BATCH, fit)))


class SqliteCopy:
    """A table of a SQLite database: `sqlite:///file.db?table=orders`."""

    form = Form.TEXT
    position = CopyPosition()

    def __init__(self, url: str, names: Mapping[str, str], at: datetime | None) -> None:
        parts = urlsplit(url)
        self._path = unquote(parts.path).removeprefix("/")
        (self._table,) = parse_qs(parts.query).get("table", [""])
        if not self._table or not self._path:
            raise UsageError("give sqlite:///FILE?table=NAME", "with_", url)
        self.label = f"table {self._table} of {self._path}"
        self.position = CopyPosition(at=at)
        self.columns: frozenset[str] | None = None
        self._names = AttributeNames(names)

    def items(self) -> Iterator[WireItem]:
        """Yields its rows, all of one moment."""
        if not Path(self._path).is_file():
            raise UsageError(f"there is no {self._path}", "with_")
        database = sqlite3.connect(f"{Path(self._path).absolute().as_uri()}?mode=ro", uri=True)
        try:
            table = self._table.replace('"', '""')
            rows = database.execute(f'SELECT * FROM "{table}"')  # noqa: S608 (a quoted name)
            names = [each[0] for each in rows.description]
            self.columns = frozenset(self._names.attributes(dict.fromkeys(names)))
            for row in rows:
                values = self._names.attributes(dict(zip(names, row, strict=True)))
                yield {name: plain_value(value) for name, value in values.items()}
        except sqlite3.Error as error:
            raise UsageError(f"can't read {self.label}: {error}", "with_") from None
        finally:
            database.close()

    def as_copied(self, item: WireItem) -> WireItem:
        """Returns the item."""
        return item

    def parts(self, count: int) -> Sequence[Copy]:
        """Returns all of it, as only one statement reads one moment."""
        part = copy(self)
        part._path = str(Path(self._path).absolute())
        return [part]


_KINDS: Final = {
    **dict.fromkeys((".jsonl", ".json", ".ndjson"), "jsonl"),
    ".csv": "csv",
    ".parquet": "parquet",
}


def _files_of(path: Path) -> tuple[list[Path], str]:
    """Returns a copy's files, and of what kind they are. Raises UsageError."""
    if not path.exists():
        raise UsageError("there is no such file or folder", "with_", str(path))
    files = [path]
    if path.is_dir():
        files = sorted(
            each
            for each in path.rglob("*")
            if each.is_file() and not any(part[0] in "_." for part in each.relative_to(path).parts)
        )
    kinds = {_kind(each) for each in files}
    if len(kinds) != 1 or None in kinds:
        raise UsageError("give files of one kind: .parquet, .jsonl or .csv", "with_", str(path))
    return files, cast(str, kinds.pop())


def _kind(path: Path) -> str | None:
    suffixes = [each for each in path.suffixes if each != ".gz"]
    return _KINDS.get(suffixes[-1]) if suffixes else None


def copy_path(text: str) -> Path | None:
    """Returns the path of a copy that is a mirror or files; None for a table.

    Logs which one it takes where a name could be both.
    """
    path = Path(text)
    if (path.exists() and _kind(path)) or is_mirror(path):
        return path
    return source_path(text)


def is_mirror(path: Path) -> bool:
    """Returns True for the folder of a mirror, in Delta's or Iceberg's format."""
    return (path / "_delta_log").is_dir() or (path / "catalog.db").is_file()


def _opened(path: Path) -> IO[str]:
    if path.suffix == ".gz":
        return cast(IO[str], gzip.open(path, "rt", encoding="utf-8-sig", newline="\n"))
    return open(path, encoding="utf-8-sig", newline="\n")


_WIRE_KINDS: Final = {"S", "N", "B", "BOOL", "NULL", "M", "L", "SS", "NS", "BS"}
_TWO_FORMS: Final = "items in DynamoDB's JSON stand beside plain ones: give files of one form"


def _is_wire_item(row: Mapping[str, object]) -> bool:
    """Returns True for an item in DynamoDB's own JSON: all values are typed.

    A plain item's are not: its key's are no objects.
    """
    values = row.values()
    return bool(row) and all(
        isinstance(each, dict) and len(each) == 1 and each.keys() <= _WIRE_KINDS for each in values
    )


def _is_wire(files: Iterable[Path]) -> bool:
    """Returns True where the first item that has attributes is in DynamoDB's own JSON."""
    try:
        for path in files:
            with _opened(path) as file:
                for row in map(json.loads, filter(str.strip, file)):
                    if row:
                        return isinstance(row, dict) and _is_wire_item(row)
    except (OSError, EOFError, ValueError):
        pass  # reading the items tells why
    return False
