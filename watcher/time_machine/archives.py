"""Reads the files of an archive that `python -m watcher archive` wrote, as records."""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from watcher.aws.model import WireItem
from watcher.errors import UsageError
from watcher.records.record import Record
from watcher.time_machine.copied_items import plain_value
from watcher.time_machine.sorted_lines import SortedLines
from watcher.version import install

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyarrow.parquet import ParquetFile

_COLUMNS: Final = (
    *("event_name", "approximate_creation_time", "keys", "new_image", "old_image"),
    *("user_identity", "shard_id", "event_id", "sequence_number", "size_bytes"),
    "stream_view_type",
)
_IMAGES: Final = (("Keys", "keys"), ("NewImage", "new_image"), ("OldImage", "old_image"))
_BATCH: Final = 2_000
_BATCH_BYTES: Final = 4 * 1024 * 1024
_ORDER: Final = "{:020.6f}{:0>64}"
_ORDER_LENGTH: Final = 84

ArchiveRow: TypeAlias = Mapping[str, Any]
"""A row of an archive: a change, its columns by name."""

_image: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_line: Final = msgspec.json.Decoder(tuple[str, msgspec.Raw])
_encode: Final = msgspec.json.Encoder().encode


class Archive:
    """An archive's folder. Raises UsageError for one that is no archive, or can't be read here."""

    def __init__(self, folder: Path) -> None:
        self.exact = True
        """False once a row's images were not in wire types: plain JSON tells no set from a list."""
        self.oldest: datetime | None = None
        """The time of the oldest row read so far."""
        try:
            self._files = sorted(_data_files(folder), key=lambda path: (_order(path.parent), path))
        except OSError as error:
            raise UsageError(f"can't read the archive {folder}: {error}") from None
        kinds = {path.suffix for path in self._files}
        # Before the first change there is only a checkpoint beside the folder.
        if kinds != {".parquet"} and (kinds or not is_archive(folder)):
            raise UsageError(
                f"{folder} is not an archive that python -m watcher archive wrote in Parquet, its "
                "default format: give such a folder, or the stream"
            )
        if kinds and not importlib.util.find_spec("pyarrow"):
            raise UsageError(f"reading an archive needs pyarrow: {install('spark')}")

    def records(self, start: datetime | None = None) -> Iterator[Record]:
        """Yields the records from a time on; those of one item come in their order.

        Folders follow one another, and within one the files have no order: what memory does not
        hold of it is sorted in temporary files. Raises UsageError.
        """
        for _, paths in itertools.groupby(self._files, lambda path: path.parent):
            lines = SortedLines()
            for row in itertools.chain.from_iterable(map(_rows, paths)):
                time = row.get("approximate_creation_time")
                if not isinstance(time, datetime):
                    raise UsageError("a row of the archive has no approximate_creation_time")
                self.oldest = min(time, self.oldest or time)
                if start is None or time >= start:
                    order = _ORDER.format(time.timestamp(), _number(row)).encode()
                    shard, record = row.get("shard_id") or "", self._record(row)
                    lines.add(b"%b%b\n" % (order, _encode((shard, record)).replace(b"\n", b" ")))
            for line in lines:
                shard, raw = _line.decode(line[_ORDER_LENGTH:])
                yield Record.from_json(bytes(raw), shard)

    def _record(self, row: ArchiveRow) -> dict[str, Any]:
        try:
            record, exact = record_of(row)
        except (msgspec.DecodeError, AttributeError, ValueError, TypeError, KeyError) as error:
            raise UsageError(f"a row of the archive is not a change: {error}") from None
        self.exact = self.exact and exact
        return record


def is_archive(path: Path) -> bool:
    """Returns True for a folder with a job's checkpoint beside it, as `archive` leaves it."""
    return Path(f"{path.absolute()}.checkpoint").is_dir()


def _data_files(folder: Path) -> Iterator[Path]:
    """Yields the files below a folder, without what Spark hides or has not completed.

    Raises OSError, and UsageError where a batch between others is gone.
    """

    def fail(error: OSError) -> None:
        raise error

    for place, folders, names in os.walk(folder, onerror=fail):
        batches = sorted(int(name[6:]) for name in folders if re.fullmatch(r"batch=\d+", name))
        if batches and batches != list(range(batches[0], batches[-1] + 1)):
            missing = min({*range(batches[0], batches[-1])}.difference(batches))
            raise UsageError(f"{place} is incomplete: batch={missing} is missing")
        folders[:] = [name for name in folders if not _is_hidden(Path(place, name))]
        yield from (Path(place, name) for name in names if name[0] not in "_.")


def _is_hidden(folder: Path) -> bool:
    """True for a folder of Spark's own, and for a batch that is being written, or was cut off."""
    is_batch = folder.name.startswith("batch=")
    return folder.name[0] in "_." or (is_batch and not (folder / "_SUCCESS").exists())


def _order(folder: Path) -> str:
    """Returns what folders are sorted by: batch=10 comes after batch=9."""
    return re.sub(r"\d+", lambda number: number[0].zfill(20), str(folder))


def _rows(path: Path) -> Iterator[ArchiveRow]:
    import pyarrow.parquet

    try:
        # pyarrow.dataset would hold whole row groups in memory: images may be large.
        with pyarrow.parquet.ParquetFile(path, pre_buffer=False) as file:
            columns = [name for name in _COLUMNS if name in file.schema_arrow.names]
            for batch in parquet_batches(file, columns):
                yield from batch.to_pylist()
    except FileNotFoundError:
        raise UsageError(f"{path} is gone: somebody removed it during the reading") from None
    except (OSError, ValueError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UsageError(f"can't read {path}: {reason}") from None


def parquet_batches(
    file: ParquetFile, columns: Sequence[str] | None = None
) -> Iterator[RecordBatch]:
    """Yields a file's rows, some megabytes at a time."""
    about = file.metadata
    size = sum(about.row_group(at).total_byte_size for at in range(about.num_row_groups))
    fit = _BATCH_BYTES * about.num_rows // max(1, size)
    yield from file.iter_batches(max(1, min(_BATCH, fit)), columns=columns)


def _number(row: ArchiveRow) -> str:
    number = row.get("sequence_number") or ""
    if not number.isdecimal():
        raise UsageError("a row of the archive has no sequence_number")
    return str(number)


def record_of(row: ArchiveRow) -> tuple[dict[str, Any], bool]:
    """Returns a row's record as the wire has it, and whether its images' types are exact."""
    keys = _image.decode(row["keys"])
    # A key attribute is never a map, so an object is a wire type, and anything else plain JSON.
    exact = all(bytes(value)[:1] == b"{" for value in keys.values())
    change: dict[str, Any] = {
        "SequenceNumber": _number(row),
        "ApproximateCreationDateTime": row["approximate_creation_time"].timestamp(),
    }
    for name, column in _IMAGES:
        if text := row.get(column):
            change[name] = msgspec.Raw(text.encode()) if exact else _typed(text)
    for name, column in (("SizeBytes", "size_bytes"), ("StreamViewType", "stream_view_type")):
        if row.get(column) is not None:
            change[name] = row[column]
    wire = {"eventID": row.get("event_id"), "eventName": row["event_name"], "dynamodb": change}
    who = row.get("user_identity") or {}
    if who.get("type") and who.get("principal_id"):
        wire["userIdentity"] = {"type": who["type"], "principalId": who["principal_id"]}
    return wire, exact


def _typed(text: str) -> WireItem:
    """Converts plain JSON to wire types; its sets become lists, its binary values texts."""
    item = json.loads(text, parse_float=Decimal, parse_int=Decimal)
    return {name: plain_value(value) for name, value in item.items()}
