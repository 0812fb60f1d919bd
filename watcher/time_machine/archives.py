"""Reads the files of an archive that `python -m watcher archive` wrote: rows, and records."""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

import msgspec

from watcher.aws.model import WireItem, WireValue
from watcher.errors import UsageError
from watcher.records.record import Record
from watcher.time_machine.sorted_lines import SortedLines
from watcher.version import install

_COLUMNS: Final = (
    *("event_name", "approximate_creation_time", "keys", "new_image", "old_image"),
    *("user_identity", "shard_id", "event_id", "sequence_number", "size_bytes"),
    "stream_view_type",
)
_LOG: Final = "_spark_metadata"
_ROWS_AT_ONCE = 2_000


ArchiveRow: TypeAlias = Mapping[str, Any]
"""A row of an archive: a change, its columns by name."""


class _LogEntry(msgspec.Struct):
    path: str
    size: int
    action: str = "add"


class Archive:
    """An archive's folder; `files` are its complete files.

    Where Spark's log lists the complete files, those that a killed job left behind do not count.
    Raises UsageError for a folder that is no archive, or can't be read here.
    """

    def __init__(self, folder: Path, formats: Collection[str] = ("parquet",)) -> None:
        self._folder = folder
        try:
            complete_files = _complete_files(folder / _LOG)
            self.files = [
                path
                for path in _data_files(folder)
                if complete_files is None or path.name in complete_files
            ]
            if complete_files is not None:
                self._check_complete(complete_files)
        except (OSError, msgspec.DecodeError) as error:
            raise UsageError(f"can't read the archive {folder}: {error}") from None
        # Before the first change there is only Spark's log, or a checkpoint beside the folder.
        has_begun = is_archive(folder)
        kinds = {path.suffix[1:] for path in self.files}
        if kinds and kinds <= {"csv", "json", "orc"} - set(formats):
            raise UsageError(
                f"{folder} holds {' and '.join(sorted(kinds))} files: archives are read here in "
                f"{' or '.join(formats)} (archive's default is parquet); or give the stream"
            )
        if len(kinds) > 1 or not kinds <= set(formats) or (not kinds and not has_begun):
            raise UsageError(
                f"{folder} is not an archive that python -m watcher archive wrote: give a folder "
                "of Parquet files"
            )
        if kinds == {"parquet"} and not _has_pyarrow():
            raise UsageError(f"reading an archive needs pyarrow: {install('spark')}")

    def _check_complete(self, complete_files: dict[str, int]) -> None:
        """Raises UsageError where files are missing: without them answers would be wrong."""
        sizes = {path.name: path.stat().st_size for path in self.files}
        wrong = [name for name, size in complete_files.items() if sizes.get(name) != size]
        if wrong:
            raise UsageError(
                f"{self._folder} is incomplete: {len(wrong)} of its {len(complete_files)} files "
                f"are missing or changed since they were written, such as {wrong[0]}"
            )

    def days(self) -> Iterator[Iterator[ArchiveRow]]:
        """Yields the rows of each day, which has a folder of its own. Raises UsageError."""
        for _, paths in itertools.groupby(self.files, lambda path: path.parent):
            yield (row for path in paths for row in _rows(path, _COLUMNS))


def is_archive(path: Path) -> bool:
    """Returns True for a folder that Spark writes to, as `archive` has it do."""
    return (path / _LOG).is_dir() or Path(f"{path.absolute()}.checkpoint").is_dir()


def _data_files(folder: Path) -> list[Path]:
    """Lists the files below a folder, without Spark's own. Raises OSError."""

    def fail(error: OSError) -> None:
        raise error

    found: list[Path] = []
    for place, folders, names in os.walk(folder, onerror=fail):
        folders[:] = [name for name in folders if name[0] not in "_."]
        found += [Path(place, name) for name in names if name[0] not in "_."]
    return sorted(found)


def _complete_files(log: Path) -> dict[str, int] | None:
    """Returns the names and sizes of the files that Spark's log calls complete; None without a log.

    Names identify the files (each holds a UUID), and stay true where the folder was moved.
    """
    if not log.is_dir():
        return None
    numbers = {int(path.stem): path for path in log.iterdir() if path.stem.isdigit()}
    compact = [number for number, path in numbers.items() if path.suffix == ".compact"]
    first = max(compact, default=0)
    entries = [
        msgspec.json.decode(line, type=_LogEntry)
        for number, path in sorted(numbers.items())
        if number >= first
        for line in path.read_bytes().splitlines()[1:]
    ]
    return {
        PurePosixPath(unquote(each.path)).name: each.size
        for each in entries
        if each.action == "add"
    }


def _has_pyarrow() -> bool:
    return importlib.util.find_spec("pyarrow") is not None


def _rows(path: Path, columns: Sequence[str]) -> Iterator[ArchiveRow]:
    try:
        yield from _json_rows(path) if path.suffix == ".json" else _parquet_rows(path, columns)
    except FileNotFoundError:
        raise UsageError(
            f"{path} is gone: the archive was compacted while it was read; run it again"
        ) from None
    except (OSError, ValueError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UsageError(f"can't read {path}: {reason}") from None


def _parquet_rows(path: Path, column_names: Sequence[str]) -> Iterator[ArchiveRow]:
    import pyarrow.parquet

    # pyarrow.dataset would hold whole row groups in memory: images may be large.
    with pyarrow.parquet.ParquetFile(path, pre_buffer=False) as file:
        columns = [name for name in column_names if name in file.schema_arrow.names]
        for batch in file.iter_batches(_ROWS_AT_ONCE, columns=columns):
            yield from batch.to_pylist()


def _json_rows(path: Path) -> Iterator[ArchiveRow]:
    with open(path, "rb") as file:
        for line in file:
            row = msgspec.json.decode(line, type=dict[str, Any])
            if created := row.get("approximate_creation_time"):
                row["approximate_creation_time"] = datetime.fromisoformat(created)
            yield row


_image: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_encode: Final = msgspec.json.Encoder().encode


class ArchivedRecord(msgspec.Struct, array_like=True, frozen=True):
    """A record from an archive."""

    exact: bool
    """True where the images are in wire types; plain JSON does not tell a set from a list."""
    shard_id: str
    raw: msgspec.Raw

    @property
    def record(self) -> Record:
        """The record."""
        return Record.from_json(bytes(self.raw), self.shard_id)


_line: Final = msgspec.json.Decoder(ArchivedRecord)
_ORDER: Final = "{:020.6f}{:0>64}"
_ORDER_LENGTH: Final = 84


def read_records(archive: Archive, start: datetime | None = None) -> Iterator[ArchivedRecord]:
    """Yields an archive's records from a time on; those of one item come in their order.

    The files of a day have no order: what memory does not hold of it is sorted in temporary files.
    Raises UsageError.
    """
    for rows in archive.days():
        lines = SortedLines()
        for row in rows:
            if start is None or _time(row) >= start:
                order = _ORDER.format(_time(row).timestamp(), row_number(row))
                lines.add(
                    order.encode() + _encode(archived_record(row)).replace(b"\n", b" ") + b"\n"
                )
        for each in lines:
            yield _line.decode(each[_ORDER_LENGTH:])


def oldest_change_time(archive: Archive) -> datetime | None:
    """Returns the time of an archive's oldest change; None where it has none."""
    for rows in archive.days():
        if times := [_time(row) for row in rows]:
            return min(times)
    return None


def wire_value(plain: msgspec.Raw) -> WireValue:
    """Converts plain JSON to wire types; its sets become lists, its binary values strings."""
    return _typed(json.loads(bytes(plain), parse_float=Decimal, parse_int=Decimal))


def _typed(value: object) -> WireValue:
    match value:
        case None:
            return {"NULL": True}
        case bool():
            return {"BOOL": value}
        case Decimal():
            return {"N": str(value)}
        case dict():
            return {"M": {name: _typed(part) for name, part in value.items()}}
        case list():
            return {"L": [_typed(part) for part in value]}
    return {"S": value}


def _time(row: ArchiveRow) -> datetime:
    time = row.get("approximate_creation_time")
    if not isinstance(time, datetime):
        raise UsageError("a row of the archive has no approximate_creation_time")
    return time


def row_number(row: ArchiveRow) -> str:
    """Returns the sequence number of a row. Raises UsageError."""
    number = row.get("sequence_number") or ""
    if not number.isdecimal():
        raise UsageError("a row of the archive has no sequence_number")
    return str(number)


def archived_record(row: ArchiveRow) -> ArchivedRecord:
    """Converts a row to a record, noting whether its types are exact. Raises UsageError."""
    try:
        return _converted(row)
    except (msgspec.DecodeError, AttributeError, ValueError, TypeError, KeyError) as error:
        raise UsageError(f"a row of the archive is not a change: {error}") from None


def _converted(row: ArchiveRow) -> ArchivedRecord:
    keys = _image.decode(row["keys"])
    # A key attribute is never a map, so an object is a wire type, and anything else plain JSON.
    exact = all(bytes(value)[:1] == b"{" for value in keys.values())
    change: dict[str, Any] = {
        "SequenceNumber": row_number(row),
        "ApproximateCreationDateTime": _time(row).timestamp(),
    }
    for name, column in (("Keys", "keys"), ("NewImage", "new_image"), ("OldImage", "old_image")):
        if text := row.get(column):
            change[name] = msgspec.Raw(text.encode()) if exact else _wire_image(text)
    for name, column in (("SizeBytes", "size_bytes"), ("StreamViewType", "stream_view_type")):
        if row.get(column) is not None:
            change[name] = row[column]
    wire = {"eventID": row.get("event_id"), "eventName": row["event_name"], "dynamodb": change}
    who = row.get("user_identity") or {}
    if who.get("type") and who.get("principal_id"):
        wire["userIdentity"] = {"type": who["type"], "principalId": who["principal_id"]}
    return ArchivedRecord(exact, row.get("shard_id") or "", msgspec.Raw(_encode(wire)))


def _wire_image(text: str) -> WireItem:
    return {name: wire_value(value) for name, value in _image.decode(text).items()}
