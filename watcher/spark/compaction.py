"""Few big files out of a day's many small ones: readers see the ones or the others, never both.

The big ones are written into another folder, which then changes places with the day's, at once
(renameat2's RENAME_EXCHANGE). So a listing of the day shows all of its rows, each once, whenever
that is and whatever is killed; and a reader that has listed it before, and opens a file afterwards,
gets an error that the file is gone, no result that lacks something.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import stat
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyarrow.parquet import ParquetFile, ParquetWriter

from watcher.errors import UsageError
from watcher.files import lock_file, swap
from watcher.formatting.text import counted
from watcher.spark.folders import DAYS, LOCK, LOG
from watcher.spark.timing import LIMITS, TIMING, SourceLimits, Timing

logger = logging.getLogger("watcher")

_COMPACTED: Final = "compacted"
_TIME: Final = "approximate_creation_time"


def compact(to: str, limits: SourceLimits = LIMITS, timing: Timing = TIMING) -> int:
    """Makes big files of the small ones in each day of an archive; returns how many fewer.

    Raises UsageError where a job is writing, where the file system can't let two folders change
    places, and for what is no archive of Parquet files on a disk.
    """
    lake = Path(to)
    if not lake.is_dir():
        raise UsageError(f"{to} is not a folder on a disk: only those can be compacted")
    if (lake / LOG).exists():
        raise UsageError(f"{to} is an archive of the first version, which can't be compacted")
    home = _home(lake.resolve())
    with _locked(home):
        fewer = sum(compact_day(day, home, limits=limits) for day in days(lake))
        time.sleep(timing.listing_seconds if fewer else 0)
        sweep(home, timing)
    return fewer


def days(lake: Path, before: str | None = None) -> Iterator[Path]:
    """Yields the folders of its days, those `before` the folder of that name."""
    for day in sorted(lake.glob(f"{DAYS}*")):
        if day.is_dir() and (before is None or day.name < before):
            yield day


def sweep(home: Path, timing: Timing = TIMING) -> None:
    """Removes replaced folders once no reader lists them, and the remains of a kill."""
    for left in (home / _COMPACTED).glob("*"):
        # A rename is a change of the folder, too.
        if time.time() - left.stat().st_ctime >= timing.listing_seconds:
            shutil.rmtree(left)


def compact_day(
    day: Path,
    home: Path,
    go_on: Callable[[], bool] = lambda: True,
    limits: SourceLimits = LIMITS,
) -> int:
    """Makes big files of a day's small ones, while it may go on; returns how many files fewer.

    Its caller keeps others from writing there. Raises UsageError where the file system can't
    let two folders change places.
    """
    found = {path: path.stat().st_size for path in sorted(day.iterdir())}
    if foreign := [path for path in found if path.suffix != ".parquet" or not path.is_file()]:
        if any(path.suffix == ".parquet" for path in found):
            logger.warning(f"{day} is not compacted: {foreign[0].name} is not a file of an archive")
        return 0
    small = [path for path, size in found.items() if size < limits.small_file_bytes]
    if len(small) < 2:
        return 0
    (home / _COMPACTED).mkdir(mode=0o700, parents=True, exist_ok=True)
    merged = Path(tempfile.mkdtemp(dir=home / _COMPACTED, prefix=f"{day.name}-"))
    merged.chmod(stat.S_IMODE(day.stat().st_mode))
    for path in found.keys() - set(small):
        os.link(path, merged / path.name)
    try:
        made = _merged(small, merged, go_on, limits)
    except pa.ArrowException as error:
        raise UsageError(f"{day} can't be compacted: {str(error).splitlines()[0]}") from error
    if made is None:
        return 0
    try:
        swap(merged, day)
    except OSError as error:
        shutil.rmtree(merged)
        raise UsageError(
            f"{day} can't be compacted: its file system can't let two folders change places "
            f"({error.strerror}), and readers would see rows twice or not at all"
        ) from error
    logger.info(f"Compacted {day}: {counted(len(small), 'file')} are {made} now")
    return len(small) - made


def _merged(
    paths: list[Path], folder: Path, go_on: Callable[[], bool], limits: SourceLimits
) -> int | None:
    """Writes their rows to the folder's disk; returns how many files, None where it was stopped."""
    schema = pa.unify_schemas([_schema(path) for path in paths], promote_options="permissive")
    expected = written = 0
    name = uuid.uuid4().hex
    made: list[Path] = []
    parts = _row_groups(paths, schema, limits)
    table = next(parts, None)
    while table is not None:
        made.append(folder / f"compacted-{name}-{len(made):05}.parquet")
        with open(made[-1], "xb", opener=_private) as file:
            os.fchmod(file.fileno(), stat.S_IMODE(paths[0].stat().st_mode))
            with ParquetWriter(file, schema) as writer:
                while table is not None and file.tell() < limits.file_bytes:
                    if not go_on():
                        return None
                    writer.write_table(table)
                    written += table.num_rows
                    table = next(parts, None)
            file.flush()
            os.fsync(file.fileno())
    for path in paths:
        with _opened(path) as file:
            expected += file.metadata.num_rows
    if written != expected:
        raise AssertionError(f"{written} rows of {expected} were written to {folder}")
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return len(made)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _row_groups(
    paths: Iterable[Path], schema: pa.Schema, limits: SourceLimits
) -> Iterator[pa.Table]:
    """Yields their rows in order, as many at once as make a row group."""
    gathered: list[pa.Table] = []
    size = 0
    for path in paths:
        with _opened(path) as file:
            for batch in file.iter_batches(limits.merge_rows):
                gathered.append(_widened(pa.Table.from_batches([batch]), schema))
                size += batch.nbytes
                if size >= limits.row_group_bytes:
                    yield pa.concat_tables(gathered).combine_chunks()
                    gathered, size = [], 0
    if gathered:
        yield pa.concat_tables(gathered).combine_chunks()


def _widened(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Returns it with all columns of the schema; one that came later is null."""
    columns = [
        table[field.name].cast(field.type)
        if field.name in table.column_names
        else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def _schema(path: Path) -> pa.Schema:
    with _opened(path) as file:
        schema = file.schema_arrow.remove_metadata()
    index = schema.get_field_index(_TIME)
    # What was written as INT96 has no zone, and is UTC.
    instant = pa.field(_TIME, pa.timestamp("us", tz="UTC"))
    return schema if index < 0 else schema.set(index, instant)


def _opened(path: Path) -> ParquetFile:
    # Not more than a page at a time: images may be large.
    return ParquetFile(path, pre_buffer=False, coerce_int96_timestamp_unit="us")


def _home(lake: Path) -> Path:
    """Returns the folder where the job that writes it keeps what readers are not to see."""
    for home in (lake.with_name(f"{lake.name}.checkpoint"), lake / "_checkpoint"):
        if (home / LOCK).exists():
            return home
    raise UsageError(f"{lake} is not an archive that python -m watcher archive wrote on this disk")


@contextmanager
def _locked(home: Path) -> Iterator[None]:
    """Holds the lock that a job's JVM holds (see `Folder.locked`)."""
    with lock_file(str(home / LOCK)) as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UsageError(
                f"a job is writing with {home}: it compacts each finished day itself. "
                "To compact today's files, end it first"
            ) from None
        yield
