"""Copies of a table that can be compared with it: another table, files, a mirror."""

from __future__ import annotations

import json
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import msgspec

from watcher.aws.json_text import mend, read
from watcher.aws.model import WireItem
from watcher.aws.tables import ReadPace
from watcher.errors import UsageError, WatcherError, error_text
from watcher.records.record_files import open_lines
from watcher.streams.checkpoint_format import Token
from watcher.time_machine.archives import parquet_batches
from watcher.time_machine.copied_items import Form, plain_value
from watcher.time_machine.sources import source_path
from watcher.time_machine.table import TableHandle
from watcher.version import install

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

_item: Final = msgspec.json.Decoder(dict[str, dict[str, Any]])


def item_of_image(image: bytes | msgspec.Raw) -> WireItem:
    """Returns an item of the wire's JSON."""
    return read(_item, image)


class CopyPosition(msgspec.Struct, frozen=True, kw_only=True):
    """The part of the stream that is in a copy; unknown without a token."""

    token: Token | None = None
    """The positions up to which all changes are in it."""
    stored_at: datetime | None = None
    """The time when the token was stored, by the clock of the machine that stored it."""
    copied_at: datetime | None = None
    """The time until which its items were first copied: it may have changes up to then as well."""


class Copy(Protocol):
    """A copy of a table."""

    label: str
    """The copy's name in the report: `mirror at version 41`."""
    form: Form
    """The part of a value's type that the copy keeps."""
    columns: frozenset[str] | None
    """The attributes that it can hold; None where that is any."""
    position: CopyPosition
    """The part of the stream that the copy holds."""

    def items(self) -> Iterator[WireItem]:
        """Yields its items. Raises UsageError, StreamError."""

    def as_copied(self, item: WireItem) -> WireItem:
        """Returns an item of the table as this copy would have it."""


@contextmanager
def readable(name: str) -> Iterator[None]:
    """Raises UsageError for whatever a damaged copy makes its libraries raise."""
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:
        if isinstance(error, WatcherError) and error.exit_status > 1:  # 1 says that they differ
            raise
        text = (error_text(error).splitlines() or [""])[0] or type(error).__name__
        raise UsageError(f"can't read {name}: {text}", "with_") from error


class TableCopy:
    """Another table of DynamoDB, as it is now."""

    form = Form.WIRE
    columns: frozenset[str] | None = None
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


class FileCopy:
    """A folder, or a file, of Parquet or JSON lines, which may be in DynamoDB's own JSON."""

    position = CopyPosition()

    def __init__(self, path: Path) -> None:
        self.label = str(path)
        self.columns: frozenset[str] | None = None
        self._files, kind = _files_of(path)
        self._is_parquet = kind == _PARQUET
        self.form = Form.COLUMNS
        if not self._is_parquet:
            self.form = Form.WIRE if _is_wire(self._files) else Form.JSON
            return
        names = []
        for each in self._files:
            with readable(str(each)), _parquet(each) as file:
                names += file.schema_arrow.names
        self.columns = frozenset(names)

    def items(self) -> Iterator[WireItem]:
        """Yields its items."""
        for path in self._files:
            with readable(str(path)):
                yield from self._rows(path) if self._is_parquet else self._lines(path)

    def as_copied(self, item: WireItem) -> WireItem:
        """Returns the item; in columns null is nothing."""
        if self.columns is None:
            return item
        return {
            name: value
            for name, value in item.items()
            if name in self.columns and "NULL" not in value
        }

    def _rows(self, path: Path) -> Iterator[WireItem]:
        with _parquet(path) as file:
            for batch in parquet_batches(file):
                for row in batch.to_pylist():
                    yield {
                        name: plain_value(cell) for name, cell in row.items() if cell is not None
                    }

    def _lines(self, path: Path) -> Iterator[WireItem]:
        with open_lines(str(path)) as file:
            for line in file:
                if line := line.removeprefix(BOM_UTF8).strip():
                    yield self._line(line)

    def _line(self, line: bytes) -> WireItem:
        if b"\\ud" in line.lower():  # half a surrogate pair: the table's is read without it, too
            line = mend(line)
        row = json.loads(line, parse_float=Decimal, parse_int=Decimal)
        if not isinstance(row, dict):
            raise ValueError("a line is not an item: give one object a line")
        if row and _is_wire_item(row) != (self.form is Form.WIRE):
            raise ValueError(_TWO_FORMS)
        if self.form is Form.WIRE:
            return row
        return {name: plain_value(value) for name, value in row.items()}


def _parquet(path: Path) -> ParquetFile:
    try:
        import pyarrow.parquet
    except ImportError:
        raise UsageError(f"reading Parquet needs pyarrow: {install('spark')}") from None
    return pyarrow.parquet.ParquetFile(path, pre_buffer=False)


_PARQUET: Final = "parquet"
_KINDS: Final = {
    **dict.fromkeys((".jsonl", ".json", ".ndjson"), "jsonl"),
    ".parquet": _PARQUET,
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
        text = "give files of one kind, .parquet or .jsonl (DuckDB's COPY writes both)"
        raise UsageError(text, "with_", str(path))
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
    """Returns True for the folder of a mirror, a Delta table."""
    return (path / "_delta_log").is_dir()


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
    for path in files:
        with readable(str(path)), open_lines(str(path)) as file:
            for row in map(json.loads, filter(bytes.strip, file)):
                if row:
                    return isinstance(row, dict) and _is_wire_item(row)
    return False
