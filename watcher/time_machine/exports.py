"""Reads a table's exports to S3: its items at one time, and the items changed since.

https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/S3DataExport.Output.html
"""

from __future__ import annotations

import gzip
import posixpath
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from watcher.aws.config import AwsConfig
from watcher.aws.json_text import read
from watcher.aws.s3 import SCHEME, ObjectsClient
from watcher.aws.tables import Description
from watcher.errors import UsageError
from watcher.records.wire import image_if_any
from watcher.streams.lineage import RETENTION

_SUMMARY: Final = "manifest-summary.json"
_FILES: Final = "manifest-files.json"


_Time = Annotated[datetime, msgspec.Meta(tz=True)]


class _Manifest(msgspec.Struct, rename="camel"):
    table_arn: str
    output_format: str
    export_time: _Time | None = None
    export_from_time: _Time | None = None
    export_to_time: _Time | None = None
    output_view: str | None = None


class DataFile(msgspec.Struct, frozen=True):
    """A file of an export."""

    location: str
    """The file's path or URL."""
    items: int


class _FileEntry(msgspec.Struct):
    dataFileS3Key: str
    itemCount: int


class ExportLine(msgspec.Struct):
    """An item, or (in an incremental export) the old and new image of a changed item."""

    Item: msgspec.Raw = msgspec.Raw()
    Keys: msgspec.Raw = msgspec.Raw()
    NewImage: msgspec.Raw = msgspec.Raw()
    """The item at the export's end; empty where it was deleted."""
    OldImage: msgspec.Raw = msgspec.Raw()
    Metadata: dict[str, Any] = {}

    @property
    def written(self) -> float | None:
        """The time of the item's last change (epoch seconds); None in exports without it."""
        micros = self.Metadata.get("WriteTimestampMicros")
        micros = micros.get("N") if isinstance(micros, dict) else micros
        return None if micros is None else int(micros) / 1_000_000


_line: Final = msgspec.json.Decoder(ExportLine)


class Export:
    """One export in DynamoDB's JSON: a folder `…/AWSDynamoDB/ID`, or its `s3://` URL.

    Raises UsageError for a folder that is no readable export, StreamError where S3 refuses.
    """

    def __init__(self, location: str, connection: AwsConfig) -> None:
        self.location = location.rstrip("/")
        self.connection = connection
        self._objects = ObjectsClient(connection) if location.startswith(SCHEME) else None
        try:
            summary = msgspec.json.decode(self._whole(_SUMMARY), type=_Manifest)
            entries = self._whole(_FILES).splitlines()
            files = [msgspec.json.decode(line, type=_FileEntry) for line in entries if line]
        except FileNotFoundError as error:
            raise UsageError(
                f"{location} is not a table's export: it has no {posixpath.basename(str(error))}: "
                "give its folder, AWSDynamoDB/EXPORT-ID"
            ) from None
        except msgspec.DecodeError as error:
            raise UsageError(f"{location} is not a table's export: {error}") from None
        if summary.output_format != "DYNAMODB_JSON":
            raise UsageError(
                f"{location} is in {summary.output_format}: export the table in DynamoDB JSON"
            )
        end = summary.export_time if summary.export_to_time is None else summary.export_to_time
        if end is None:
            raise UsageError(f"{location} does not say of which time it is")
        self.table_arn = summary.table_arn
        self.view_type = summary.output_view
        """The images of an incremental export: NEW_IMAGE or NEW_AND_OLD_IMAGES."""
        self.time = end
        """The time whose items the export holds."""
        self.since = summary.export_from_time
        """The beginning of an incremental export; None for a full one."""
        # Incremental ones share a folder beside their own.
        folder = posixpath.dirname(self.location) if self.since else self.location
        self.files = [
            DataFile(f"{folder}/data/{posixpath.basename(each.dataFileS3Key)}", each.itemCount)
            for each in files
        ]

    def check_table(self, table: Description) -> None:
        """Raises UsageError for the export of another table, or of one that was deleted since."""
        arn = self.table_arn
        if arn != table.arn:
            raise UsageError(f"it belongs to {arn}, not to {table.arn}", "baseline", self.location)
        if table.created > self.time:
            text = f"table {arn} was deleted and created again since"
            raise UsageError(text, "baseline", self.location)

    def _whole(self, name: str) -> bytes:
        location = f"{self.location}/{name}"
        try:
            if self._objects is not None:
                return self._objects.whole(location)
            return Path(location).read_bytes()
        except FileNotFoundError:
            raise FileNotFoundError(location) from None
        except OSError as error:
            raise UsageError(f"can't read {location}: {error.strerror or error}") from None

    def lines(self) -> Iterator[ExportLine]:
        """Yields all lines, file by file. Raises UsageError where some are missing."""
        for file in self.files:
            yield from self.lines_of(file)

    def lines_of(self, file: DataFile) -> Iterator[ExportLine]:
        """Yields the lines of one file. Raises UsageError where some are missing."""
        count = 0
        try:
            with ExitStack() as opened:
                place = file.location
                packed = open(place, "rb") if self._objects is None else self._objects.open(place)
                for text in opened.enter_context(gzip.open(opened.enter_context(packed))):
                    line = read(_line, text)
                    line.NewImage = image_if_any(line.NewImage)
                    line.OldImage = image_if_any(line.OldImage)
                    yield line
                    count += 1
        except FileNotFoundError:
            raise UsageError(f"the export {self.location} lacks its file {file.location}") from None
        except (OSError, EOFError, zlib.error, msgspec.DecodeError) as error:
            raise UsageError(f"can't read {file.location}: {error}") from None
        if count != file.items:
            raise UsageError(
                f"{file.location} is incomplete: {count} lines, of {file.items} by {_FILES}"
            )


def full_export(location: str, connection: AwsConfig) -> Export:
    """Opens a full export. Raises UsageError for an incremental one, too."""
    export = Export(location, connection)
    if export.since is not None:
        raise UsageError("it is incremental: give a full one", "baseline", location)
    return export


def joined_exports(
    locations: Sequence[str], connection: AwsConfig, table: Description
) -> list[Export]:
    """Opens a full export and the incremental ones behind it, in the order of their times.

    Raises UsageError where one is of another table or missing, and where the table's stream may
    not go on from the last one.
    """
    found = [Export(each, connection) for each in locations]
    for each in found:
        each.check_table(table)
    found.sort(key=lambda each: (each.since is not None, each.time))
    full, *later = found
    if full.since is not None or any(each.since is None for each in later):
        raise UsageError("give one full export, and incremental ones of later times", "baseline")
    joined = [full]
    for each in later:
        end = joined[-1].time
        if each.since is not None and each.since > end:
            text = f"the changes from {end} to {each.since} are in no export: give that one, too"
            raise UsageError(text, "baseline", each.location)
        if each.time > end:
            joined.append(each)
    if datetime.now(UTC) - joined[-1].time > RETENTION:
        text = (
            "its end is before the stream's 24 hours: give an incremental export of the time since"
        )
        raise UsageError(text, "baseline", joined[-1].location)
    return joined
