"""`format("dynamodb_export")`: a table's export to S3 as a DataFrame, with the source's columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from watcher.aws.arns import region_in
from watcher.errors import UsageError
from watcher.records.wire import WireChange
from watcher.spark import options
from watcher.spark.columns import ddl, key_of_item
from watcher.spark.options import SourceOptions
from watcher.spark.tasks import row_encoder
from watcher.time_machine.exports import Export, ExportLine

_ROWS: Final = 1_000
_STREAM_OPTIONS: Final = (
    *("stream", "startingposition", "endingposition", "maxrecordspertrigger"),
    *("wirerecords", "failondataloss", "items", "readlimit"),
)


class ExportReader(DataSourceReader):
    """A task for each file: DynamoDB writes one for each of the table's partitions, or more."""

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        self._options, self._place, self._keys = _parsed(given)
        self._encoder = row_encoder(self._options, schema)

    def _export(self) -> Export:
        return Export(self._place, self._options.connection)

    def partitions(self) -> list[InputPartition]:
        """Returns the files that the manifest names and that are not empty."""
        return [InputPartition(file) for file in self._export().files if file.items]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yields a file's rows; an item of a full export has no event name and no number."""
        export = self._export()
        region = region_in(export.table_arn)
        lines = export.lines_of(partition.value)
        while some := list(islice(lines, _ROWS)):
            rows = (self._row(export, line) for line in some)
            yield self._encoder.encode_items(rows, region, self._keys)

    def _row(self, export: Export, line: ExportLine) -> tuple[str | None, WireChange]:
        key = line.Keys
        if self._keys:  # in both kinds of exports the same text for an item
            key = key_of_item(line.Keys if export.since else line.Item, self._keys)
        if export.since is None:
            return None, WireChange("", export.time.timestamp(), key, line.Item)
        images, view = (line.NewImage, line.OldImage), export.view_type
        change = WireChange("", line.written, key, *images, StreamViewType=view)
        kind = "MODIFY" if bytes(line.NewImage) else "REMOVE"
        if kind == "MODIFY" and view != "NEW_IMAGE" and not bytes(line.OldImage):
            kind = "INSERT"
        return kind, change


class DynamoDBExport(DataSource):
    """A table's export to S3, full or incremental, in DynamoDB JSON."""

    @classmethod
    def name(cls) -> str:
        """Returns what goes into `format(…)`."""
        return "dynamodb_export"

    def schema(self) -> str:
        """Returns the columns of `dynamodb_streams`."""
        return ddl(_parsed(dict(self.options))[0])

    def reader(self, schema: StructType) -> ExportReader:
        """Returns the reader of `spark.read`."""
        return ExportReader(dict(self.options), schema)


def _parsed(given: Mapping[str, str]) -> tuple[SourceOptions, str, list[str]]:
    """Returns the options that an export shares with a stream, its place, and the keys' names."""
    rest = {name.lower(): value for name, value in given.items()}
    names = [name.strip() for name in rest.pop("keys", "").split(",") if name.strip()]
    for name in _STREAM_OPTIONS:
        if name in rest:
            raise UsageError(f"dynamodb_export has no option {name}; streams have it")
    place = rest.pop("path", "")
    if not place:
        raise UsageError("give the export's folder, AWSDynamoDB/EXPORT-ID: .load(folder)")
    return options.parse({**rest, "stream": "export"}, streaming=False), place, names
