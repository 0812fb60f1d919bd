"""The parts of a mirror's table: small files by the hash of the key, so that a commit touches few.

Every reader of Delta has to see a commit as it is, also those without support for deletion vectors
(pyarrow's datasets). So a changed row means a new file in place of its old one. 100 changes of
random keys write 100 files, whatever the table's size: a file holds about `part_bytes` of rows, as
long as the table has no more than `parts` of them. More files make smaller commits and slower
readers. A larger table has larger parts, and its commits grow with it.

The number of parts is in the names of the files. When it no longer suits the table, and when files
have other names (those of the copy, of an earlier watcher, of an OPTIMIZE), the table is split
again, in a commit of its own that changes no row. Ended versions (`--history`) never change: they
are in files of their own, and 64 of these are merged into one.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Final, NamedTuple
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from watcher.mirror.folder import Folder

PART: Final = "__watcher_part"
"""The column of a part's number, in the rows that `read_parts` returns; no file has it."""
_PART: Final = re.compile(r"part-(\d+)-of-(\d+)-[0-9a-f]{16}\.parquet")
_ENDED: Final = re.compile(r"ended-(\d+)-[0-9a-f]{16}\.parquet")
_MERGED: Final = 64
_LEVELS: Final = 3
_FAN_OUT: Final = 64
_BATCH_ROWS: Final = 65_536


@dataclass(frozen=True)
class DataFile:
    """A file of the table. Each commit asks thousands of them for what their names tell."""

    path: str
    size: int
    rows: int

    @cached_property
    def part(self) -> int | None:
        """Returns the number of a file's part; None if it belongs to no part."""
        found = _PART.fullmatch(self.path)
        return int(found[1]) if found else None

    @cached_property
    def parts(self) -> int | None:
        """Returns how many parts the table had when a file was written; None outside parts."""
        found = _PART.fullmatch(self.path)
        return int(found[2]) if found else None

    @cached_property
    def level(self) -> int | None:
        """Returns how often the ended versions in a file were merged; None for other files."""
        found = _ENDED.fullmatch(self.path)
        return int(found[1]) if found else None


def part_of(keys: Sequence[pa.Array | pa.ChunkedArray], parts: int) -> list[int]:
    """Returns the number of each row's part, of these key columns."""
    columns = [_bytes(column) for column in keys]
    return [zlib.crc32(b"\0".join(values)) % parts for values in zip(*columns, strict=True)]


def _bytes(column: pa.Array | pa.ChunkedArray) -> list[bytes]:
    # A value has to keep these bytes forever: they say in which file it is.
    if pa.types.is_timestamp(column.type):
        column = pc.cast(column, pa.timestamp("us", tz=column.type.tz)).cast(pa.int64())
    elif pa.types.is_date(column.type):
        column = column.cast(pa.int32())
    return [_value_bytes(value) for value in column.to_pylist()]


def _value_bytes(value: object) -> bytes:
    match value:
        case bytes():
            return value
        case Decimal():
            return format(value, "f").encode()
        case float():
            return value.hex().encode()
    return str(value).encode("utf-8", "surrogatepass")


class PartFiles:
    """Reads and writes the files of one table, in its folder."""

    def __init__(self, folder: Folder, *, chunk_bytes: int) -> None:
        self._folder = folder
        self._chunk_bytes = chunk_bytes

    def read(self, files: Sequence[DataFile], schema: pa.Schema) -> pa.Table:
        """Returns their rows, with the columns of `schema`."""
        tables = [schema.empty_table()]
        for each in files:
            with self._folder.open(each.path) as file:
                found = pq.ParquetFile(file).read(use_threads=False)
            tables.append(_with_columns(found, schema))
        return pa.concat_tables(tables)

    def read_parts(self, files: Sequence[DataFile], schema: pa.Schema) -> pa.Table:
        """Returns the rows of files of parts, with the number of each row's part in `PART`."""
        rows = self.read(files, schema)
        numbers = [pa.repeat(pa.scalar(each.part, pa.int32()), each.rows) for each in files]
        return rows.append_column(PART, pa.chunked_array(numbers, pa.int32()))

    def write_parts(self, rows: pa.Table, parts: int, schema: pa.Schema) -> Iterator[DataFile]:
        """Writes rows that have `PART` into a file for each of their parts."""
        rows = rows.sort_by(PART).combine_chunks()
        begin = 0
        for found in pc.value_counts(rows[PART].combine_chunks()).to_pylist():
            part, count = found["values"], found["counts"]
            name = f"part-{part}-of-{parts}-{uuid4().hex[:16]}.parquet"
            yield self._write(rows.slice(begin, count), name, schema)
            begin += count

    def write_copied(self, rows: pa.Table, schema: pa.Schema) -> DataFile:
        """Writes rows of no part; the next commit of changes splits them."""
        return self._write(rows, f"copied-{uuid4().hex[:16]}.parquet", schema)

    def write_ended(self, rows: pa.Table, schema: pa.Schema, level: int = 0) -> DataFile:
        """Writes versions that have ended."""
        return self._write(rows, f"ended-{level}-{uuid4().hex[:16]}.parquet", schema)

    def to_merge(self, files: Sequence[DataFile]) -> tuple[list[DataFile], int] | None:
        """Returns files of ended versions that are to become one, and its level."""
        for level in range(_LEVELS):
            found = [each for each in files if each.level == level]
            if len(found) >= _MERGED:
                return found[:_MERGED], level + 1
        return None

    def part_anew(
        self,
        files: Sequence[DataFile],
        schema: pa.Schema,
        keys: Sequence[str],
        parts: int,
        has_ended: Callable[[pa.Table], pa.Array] | None,
    ) -> Iterator[DataFile]:
        """Writes the rows of these files into so many parts; a chunk at a time in memory."""
        with self._folder.work_folder() as work:
            sources = (self._folder.open(each.path) for each in files)
            split = _Split(work, schema, keys, parts, self._chunk_bytes)
            for path in split.by_part(sources, (0, parts)):
                rows = pq.ParquetFile(path).read()
                if has_ended is not None:
                    ended = has_ended(rows)
                    if pc.any(ended).as_py():
                        yield self.write_ended(rows.filter(ended), schema, _LEVELS)
                    rows = rows.filter(pc.invert(ended))
                yield from self.write_parts(rows, parts, schema)

    def _write(self, rows: pa.Table, name: str, schema: pa.Schema) -> DataFile:
        # A part is small: what a dictionary and statistics of each column take would be half of it.
        is_small = rows.nbytes < _BATCH_ROWS
        # The columns' own metadata may have the ids that Iceberg's readers find them by.
        rows = pa.Table.from_arrays([rows[name] for name in schema.names], schema=schema)
        with self._folder.create(name) as file:
            pq.write_table(
                rows,
                file,
                compression="zstd",
                use_dictionary=not is_small,
                write_statistics=not is_small,
                store_schema=False,
            )
            size = file.tell()
        return DataFile(name, size, rows.num_rows)


class _Split(NamedTuple):
    """Sorts rows by their parts, into files on a disk."""

    work: Path
    schema: pa.Schema
    keys: Sequence[str]
    parts: int
    chunk_bytes: int

    def by_part(
        self, sources: Iterable[pa.NativeFile | Path], span: tuple[int, int]
    ) -> Iterator[Path]:
        """Yields files with the rows of some parts each, small enough for the memory."""
        first, last = span
        step = -(-(last - first) // _FAN_OUT)
        writers: dict[int, pq.ParquetWriter] = {}
        placed = self.schema.append(pa.field(PART, pa.int32()))
        names: dict[int, Path] = {}
        for source in sources:
            for table in self._tables(source):
                slots = pc.divide(pc.subtract(table[PART], first), step)
                for slot in pc.unique(slots).to_pylist():
                    if slot not in writers:
                        names[slot] = self.work / f"{uuid4().hex}.parquet"
                        writers[slot] = pq.ParquetWriter(names[slot], placed)
                    writers[slot].write_table(table.filter(pc.equal(slots, slot)))
        for slot, writer in writers.items():
            writer.close()
            begin = first + slot * step
            if step > 1 and names[slot].stat().st_size > self.chunk_bytes:
                yield from self.by_part([names[slot]], (begin, min(last, begin + step)))
            else:
                yield names[slot]
            names[slot].unlink(missing_ok=True)

    def _tables(self, source: pa.NativeFile | Path) -> Iterator[pa.Table]:
        with pq.ParquetFile(source) as file:
            for batch in file.iter_batches(_BATCH_ROWS):
                table = _with_columns(pa.table(batch), self.schema)
                part_numbers = pa.array(
                    part_of([table[k] for k in self.keys], self.parts), pa.int32()
                )
                yield table.append_column(PART, part_numbers)


def _with_columns(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Returns it with these columns: null where a file is older than a column."""
    if table.schema.equals(schema):
        return table
    has = set(table.column_names)
    return pa.table(
        [
            table[field.name].cast(field.type)
            if field.name in has
            else pa.nulls(table.num_rows, field.type)
            for field in schema
        ],
        schema=schema,
    )
