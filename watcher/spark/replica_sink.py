"""The sink `dynamodb_replica`: changes to puts and deletes, per item in their order."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from watcher.aws.config import AwsConfig
from watcher.aws.tables import BATCH, TablesClient, Write, for_task
from watcher.records.diff import key_of
from watcher.records.record import wire_item


class ReplicaWriter(DataSourceStreamArrowWriter):
    """Writes a micro-batch's changes to a table.

    A shard's changes are in one partition, in order, and its parent's before them, there or in a
    batch before; so each item ends as its last change left it, however often a batch is done again.
    """

    def __init__(self, table: str, connection: AwsConfig) -> None:
        self._table = table
        self._connection = connection

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Writes one partition."""
        client = for_task(self._connection)
        for batch in iterator:
            names = batch.column("event_name").to_pylist()
            keys = batch.column("keys").to_pylist()
            images = batch.column("new_image").to_pylist()
            self._apply(client, last_writes(names, keys, images))
        return WriterCommitMessage()

    def _apply(self, client: TablesClient, writes: list[Write]) -> None:
        for first in range(0, len(writes), BATCH):
            client.write(self._table, writes[first : first + BATCH])


def last_writes(names: list[str], keys: list[str], images: list[str | None]) -> list[Write]:
    """Returns each item's last change as a write: no request may name an item twice."""
    last: dict[str, tuple[str, str | None]] = {}
    for name, key, image in zip(names, keys, images, strict=True):
        last[_key_text(key)] = (key, None if name == "REMOVE" else image)
    return [_write(key, image) for key, image in last.values()]


def _key_text(key: str) -> str:
    """Returns a key's text, whatever the order of its two attributes."""
    return msgspec.json.encode(key_of(key.encode()), order="sorted").decode()


def _write(key: str, image: str | None) -> Write:
    if image is None:
        return {"DeleteRequest": {"Key": wire_item(key.encode())}}
    return {"PutRequest": {"Item": wire_item(image.encode())}}


class DynamoDBReplica(DataSource):
    """A table that follows another one."""

    @classmethod
    def name(cls) -> str:
        """Returns what goes into `format(…)`."""
        return "dynamodb_replica"

    def streamWriter(self, schema: StructType, overwrite: bool) -> ReplicaWriter:
        """Returns the writer; options are `table`, `region`, `endpointUrl` and `profile`."""
        get = self.options.get
        connection = AwsConfig(get("region"), get("profile"), get("endpointUrl"))
        return ReplicaWriter(self.options["table"], connection)
