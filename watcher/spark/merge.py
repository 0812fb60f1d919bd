"""`merge_into`: keeps a table in a lake equal to a DynamoDB table, by MERGE in `foreachBatch`."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial, reduce
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import lit, max_by

from watcher.aws.config import AwsConfig
from watcher.aws.connect import connect
from watcher.aws.model import CLOCKS_APART
from watcher.aws.retry import first_listing
from watcher.errors import StreamError, UsageError, blame
from watcher.formatting.text import counted
from watcher.mirror.columns import MirrorColumns, given_columns, item_of
from watcher.mirror.versions import (
    ItemChange,
    MirrorForm,
    Rows,
    made_change,
    refuse_other,
    refuse_view,
)
from watcher.records.diff import key_of
from watcher.records.redaction import redaction, redaction_text
from watcher.spark import compat
from watcher.spark.error_mapping import translating_errors
from watcher.spark.lake_table import LakeTable
from watcher.spark.session import file_system
from watcher.spark.source import register
from watcher.streams.lineage import RETENTION
from watcher.time_machine.exports import Export, joined_exports
from watcher.time_machine.table import open_table

logger = logging.getLogger("watcher")

_COLUMNS: Final = (
    *("keys", "event_name", "new_image", "old_image", "position"),
    "approximate_creation_time",
)
# A table of rows is made of so many, or of one item's.
_CHANGES: Final = 5_000
_DONE: Final = "done"


class Merge:
    """A function for `foreachBatch`, which merges a micro-batch's changes into the table.

    A micro-batch that comes again changes nothing.
    """

    def __init__(
        self,
        target: tuple[str, str],
        rows: Rows,
        columns: MirrorColumns,
        *,
        options: Mapping[str, str],
        checkpoint: str,
    ) -> None:
        self._target = target
        self._rows = rows
        self._columns = columns
        self.options = options
        """The options of `spark.readStream.format("dynamodb_streams")`."""
        self.checkpoint = checkpoint
        """The query's `checkpointLocation`: each copy of the table's items has its own."""

    @translating_errors()  # Spark tells the first line of an error from here
    def __call__(self, batch: DataFrame, number: int) -> None:
        """Merges a micro-batch."""
        table = LakeTable(batch.sparkSession, *self._target)
        columns, schema = self._columns, table.schema()
        if schema is None:
            raise UsageError(f"{table.name} is gone: start again")
        columns.adopt(schema)
        changes = batch.select(*_COLUMNS).repartition("keys")
        changes = changes.sortWithinPartitions("keys", "position")
        own = [*self._rows.own, *self._rows.flags]
        with table.rows(changes, columns, own, partial(_changed, self._rows)) as (made, count):
            if count:
                table.merge(made, self._rows, columns.keys)


def merge_into(  # noqa: PLR0913 (as the command's options)
    spark: SparkSession,
    stream: str,
    target: str,
    *,
    format: str = "delta",  # noqa: A002
    history: bool = False,
    columns: str | None = None,
    item: str | None = None,
    partition_by: str | None = None,
    properties: Mapping[str, str] | None = None,
    baseline: Sequence[str] | None = None,
    recopy: bool = False,
    checkpoint: str | None = None,
    redact: Sequence[str] | None = None,
    connection: AwsConfig = AwsConfig(),  # noqa: B008 (it is frozen)
) -> Merge:
    """Copies a table's items to `target`, unless that is done, and returns what merges the changes.

    `target` is a Delta table's path, or CATALOG.SCHEMA.TABLE of the `format` delta or iceberg.
    Raises UsageError, StreamError.
    """
    register(spark)
    rules, given = redaction(redact), given_columns(columns)
    service, arn = connect(stream, connection)
    listing = first_listing(service, arn)
    refuse_view(listing.view_type, history=history)
    described = open_table(service.table(arn), connection).description
    rows, wanted, made_as = MirrorForm.of(
        arn, described.types, history=history, columns=given, item=item, redaction=rules
    )
    table = LakeTable(spark, _known(spark, target, "to"), format)
    state = {"table": described.identity, **made_as}
    named = {
        "imageFormat": "dynamodb-json",
        "region": connection.region,
        "profile": connection.profile,
        "endpointUrl": connection.endpoint_url,
        "redact": redaction_text(redact),
    }
    shared = {name: text for name, text in named.items() if text is not None}
    source = {"stream": arn, **shared}
    found = _opened(table, wanted, rows, state, parts=partition_by, recopy=recopy)
    table.set(properties or {})
    start = found.get("from", "")
    place = checkpoint or f"{table.location().rstrip('/')}/_checkpoint"
    place = _known(spark, place, "checkpoint")
    if recopy or found.get("copy") != _DONE:
        exports = joined_exports(baseline, connection, described) if baseline else []
        begins = (exports[-1].time if exports else listing.time) - CLOCKS_APART
        if exports:
            items = _exported(spark, exports, {**shared, "keys": ",".join(described.types)})
        else:
            reader = spark.read.format("dynamodb_streams").options(**source, items="true")
            items = reader.load().select("new_image")
        _copy(items, table, rows, wanted, found=found, state=state, begins=begins)
        start = begins.isoformat()
    place = f"{place.rstrip('/')}/{start[:19].replace(':', '')}"
    return Merge(
        (target, format),
        rows,
        wanted,
        options={**source, "startingPosition": start, "checkpointLocation": place},
        checkpoint=place,
    )


def _known(spark: SparkSession, place: str, option: str) -> str:
    """Returns a place. Raises UsageError for a URL that this Spark can't write."""
    if "://" in place and compat.context_of(spark) is not None:
        with blame(option):
            file_system(spark, place)
    return place


def _opened(
    table: LakeTable,
    columns: MirrorColumns,
    rows: Rows,
    state: Mapping[str, str],
    *,
    parts: str | None,
    recopy: bool,
) -> Mapping[str, str]:
    """Creates the table, or adopts its columns; returns its state. Raises UsageError."""
    schema = table.schema()
    if schema is None:
        table.create(pa.schema([*columns.schema, *rows.own]), parts, state)
        return {}
    found = table.state()
    _refuse_other(table, found, state, recopy=recopy)
    columns.adopt(schema)
    table.grow(columns.schema)
    return found


def _refuse_other(
    table: LakeTable, found: Mapping[str, str], state: Mapping[str, str], *, recopy: bool
) -> None:
    """Raises UsageError for a table of something else, or one that has to be copied again."""
    if not found:
        raise UsageError(f"{table.name} is not of mirror --engine spark: give another", "to")
    refuse_other(table.name, found, {**state, "stream": found["stream"]})
    if found["stream"] != state["stream"] and not recopy:
        raise UsageError(
            f"{table.name} follows {found['stream']}, which another stream has replaced: "
            "give --recopy, which compares it with the table and goes on with the new one"
        )


def _exported(
    spark: SparkSession, exports: Sequence[Export], options: Mapping[str, str]
) -> DataFrame:
    """Returns the items at the end of the last export; see `exported_items` for those of a disk."""
    reader = spark.read.format("dynamodb_export").options(**options)
    frames = [
        reader.load(each.location).select("keys", "new_image", lit(at).alias("at"))
        for at, each in enumerate(exports)
    ]
    items = reduce(DataFrame.union, frames)
    if len(frames) > 1:
        items = items.groupBy("keys").agg(max_by("new_image", "at").alias("new_image"))
    return items.select("new_image").where("new_image IS NOT NULL")


def _copy(
    items: DataFrame,
    table: LakeTable,
    rows: Rows,
    columns: MirrorColumns,
    *,
    found: Mapping[str, str],
    state: Mapping[str, str],
    begins: datetime,
) -> None:
    """Copies the items over whatever there is, or merges them; then stores the state."""
    is_whole = found.get("copy") == _DONE
    if not is_whole:
        table.set_state({**state, "copy": "begun"})
    with table.rows(items, columns, rows.own, partial(_copied, rows)) as (made, count):
        logger.info(f"{'compared' if is_whole else 'copied'}: {counted(count, 'item')}")
        is_renumbered = is_whole and found["stream"] != state["stream"]
        if not is_whole:
            table.overwrite(made)
        elif rows.last_only:
            table.merge_whole(made, columns, is_renumbered=is_renumbered)
        else:
            table.merge_whole_history(made, columns, at=begins, is_renumbered=is_renumbered)
    if datetime.now(UTC) - begins > RETENTION:
        raise StreamError("the copy took more than the stream's 24 hours: give --baseline")
    table.set_state({**state, "from": begins.isoformat(), "copy": _DONE})


def _copied(
    rows: Rows, columns: MirrorColumns, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.Table]:
    for batch in batches:
        images = batch["new_image"].to_pylist()
        yield rows.items(columns, [item_of(image.encode()) for image in images])


def _changed(
    rows: Rows, columns: MirrorColumns, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.Table]:
    """Yields the rows to merge, on an executor that gets whole items' changes in their order."""
    made = (
        row
        for batch in batches
        for row in zip(*(batch[name].to_pylist() for name in _COLUMNS), strict=True)
    )
    found: list[ItemChange] = []
    for _, group in groupby(made, key=itemgetter(0)):
        # A hot item's other changes are not even decoded.
        needed = deque(group, maxlen=1 if rows.last_only else None)
        found += map(_change, needed)
        if len(found) >= _CHANGES:
            yield rows.changes(columns, found)
            found = []
    if found:
        yield rows.changes(columns, found)


def _change(row: Sequence[Any]) -> ItemChange:
    keys, kind, new, old, number, at = row
    new, old = ((image or "").encode() for image in (new, old))
    key = {**key_of(keys.encode())}
    return made_change(keys, kind, key, new=new, old=old, number=number, at=at)
