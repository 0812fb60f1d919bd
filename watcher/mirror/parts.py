"""The parts of a mirror's table: small files by the hash of the key, so that a commit touches few.

Every reader of Delta has to see a commit as it is, also those that know no deletion vectors
(pyarrow's datasets), so a changed row means a new file in place of its old one. What 100 changes of
random keys cost is then 100 files, whatever the table's size: a file holds about `part_bytes` of
rows, so long as the table has no more than `parts` of them. Of a million items (20 bytes each) 100
files of 7 KB are 0.7 MB; one file would be 20 MB. More files make smaller commits and slower
readers: of 2,560 Polars and DuckDB read a million rows in less than a second. A larger table has
larger parts, and its commits grow with it again.

The number of parts is in the names of the files. When it no longer suits the table, and when files
have other names (a copy's, a former version's, those of an OPTIMIZE), the table is parted anew, in
a commit of its own that changes no row. Versions that have ended (`--history`) never change: they
are in files of their own, which are merged 64 to one.
"""

from __future__ import annotations

import re
import shutil
import zlib
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Final, NamedTuple
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

_PART: Final = re.compile(r"part-(\d+)-of-(\d+)-[0-9a-f]{16}\.parquet")
_ENDED: Final = re.compile(r"ended-(\d+)-[0-9a-f]{16}\.parquet")
_MERGED: Final = 64
_LEVELS: Final = 3
_FAN_OUT: Final = 64
_BATCH_ROWS: Final = 65_536
_UNFINISHED: Final = "_parting"
_PLACE: Final = "__watcher_part"


class DataFile(NamedTuple):
    """A file of the table."""

    path: str
    size: int
    rows: int

    @property
    def part(self) -> int | None:
        """Returns the number of a file's part; None if it belongs to no part."""
        found = _PART.fullmatch(self.path)
        return int(found[1]) if found else None

    @property
    def parts(self) -> int | None:
        """Returns how many parts the table had when a file was written; None outside parts."""
        found = _PART.fullmatch(self.path)
        return int(found[2]) if found else None

    @property
    def level(self) -> int | None:
        """How often the ended versions in it were merged; None for one that has none."""
        found = _ENDED.fullmatch(self.path)
        return int(found[1]) if found else None


def part_of(keys: Sequence[pa.Array | pa.ChunkedArray], parts: int) -> list[int]:
    """Returns the number of each row's part, of these key columns."""
    columns = [_bytes(column) for column in keys]
    return [zlib.crc32(b"\0".join(values)) % parts for values in zip(*columns, strict=True)]


def _bytes(column: pa.Array | pa.ChunkedArray) -> list[bytes]:
    # A value has to have these bytes for ever: they say in which file it is.
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

    def __init__(self, folder: str, *, chunk_bytes: int) -> None:
        self._folder = Path(folder)
        self._chunk_bytes = chunk_bytes

    def read(self, files: Sequence[DataFile], schema: pa.Schema) -> pa.Table:
        """Returns their rows, with the columns of today."""
        tables = [schema.empty_table()]
        for each in files:
            with pa.OSFile(str(self._folder / each.path)) as file:
                found = pq.ParquetFile(file).read(use_threads=False)
            tables.append(_with_columns(found, schema))
        return pa.concat_tables(tables)

    def write_part(self, rows: pa.Table, part: int, parts: int) -> DataFile:
        """Writes the rows of a part."""
        return self._write(rows, f"part-{part}-of-{parts}-{uuid4().hex[:16]}.parquet")

    def write_ended(self, rows: pa.Table, level: int = 0) -> DataFile:
        """Writes versions that have ended."""
        return self._write(rows, f"ended-{level}-{uuid4().hex[:16]}.parquet")

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
        work = self._folder / _UNFINISHED
        shutil.rmtree(work, ignore_errors=True)  # of one that was killed
        work.mkdir()
        try:
            paths = [self._folder / each.path for each in files]
            for path in self._by_part(paths, schema, keys, parts, (0, parts)):
                yield from self._parted(path, schema, parts, has_ended)
        finally:
            shutil.rmtree(work)

    def _by_part(
        self,
        paths: Sequence[Path],
        schema: pa.Schema,
        keys: Sequence[str],
        parts: int,
        span: tuple[int, int],
    ) -> Iterator[Path]:
        """Yields files with the rows of some parts each, small enough for the memory."""
        first, last = span
        step = -(-(last - first) // _FAN_OUT)
        rooms: dict[int, pq.ParquetWriter] = {}
        work = self._folder / _UNFINISHED
        placed = schema.append(pa.field(_PLACE, pa.int32()))
        names: dict[int, Path] = {}
        for path in paths:
            for batch in pq.ParquetFile(path).iter_batches(_BATCH_ROWS):
                table = _with_columns(pa.table(batch), schema)
                places = pa.array(part_of([table[name] for name in keys], parts), pa.int32())
                table = table.append_column(_PLACE, places)
                rooms_of = pc.divide(pc.subtract(places, first), step)
                for room in pc.unique(rooms_of).to_pylist():
                    if room not in rooms:
                        names[room] = work / f"{uuid4().hex}.parquet"
                        rooms[room] = pq.ParquetWriter(names[room], placed)
                    rooms[room].write_table(table.filter(pc.equal(rooms_of, room)))
        for room, writer in rooms.items():
            writer.close()
            begin = first + room * step
            if step > 1 and names[room].stat().st_size > self._chunk_bytes:
                inner = (begin, min(last, begin + step))
                yield from self._by_part([names[room]], schema, keys, parts, inner)
            else:
                yield names[room]
            names[room].unlink(missing_ok=True)

    def _parted(
        self,
        path: Path,
        schema: pa.Schema,
        parts: int,
        has_ended: Callable[[pa.Table], pa.Array] | None,
    ) -> Iterator[DataFile]:
        rows = pq.ParquetFile(path).read()
        if has_ended is not None:
            ended = has_ended(rows)
            if pc.any(ended).as_py():
                yield self.write_ended(rows.filter(ended).select(schema.names), _LEVELS)
            rows = rows.filter(pc.invert(ended))
        rows = rows.sort_by(_PLACE)
        begin = 0
        for count in pc.value_counts(rows[_PLACE].combine_chunks()).to_pylist():
            found = rows.slice(begin, count["counts"]).select(schema.names)
            begin += count["counts"]
            yield self.write_part(found, count["values"], parts)

    def _write(self, rows: pa.Table, name: str) -> DataFile:
        path = self._folder / name
        # A part is small: what a dictionary and statistics of each column take would be half of it.
        is_small = rows.nbytes < _BATCH_ROWS
        with pa.OSFile(str(path), "wb") as file:
            pq.write_table(
                rows,
                file,
                compression="zstd",
                use_dictionary=not is_small,
                write_statistics=not is_small,
                store_schema=False,
            )
        return DataFile(name, path.stat().st_size, rows.num_rows)


def _with_columns(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Returns it with these columns: null where a file is older than a column."""
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
