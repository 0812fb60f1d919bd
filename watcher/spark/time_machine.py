"""As-of and history over archives of any size, on Spark: the same rules as `time_machine`."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql

from watcher.aws.model import CLOCKS_APART
from watcher.errors import StreamError, UsageError
from watcher.formatting.text import write_json
from watcher.records.filters import record_filter
from watcher.records.plain_json import plain_json
from watcher.records.record import Record
from watcher.time_machine import as_of as plain
from watcher.time_machine.archives import ArchivedRecord, archived_record
from watcher.time_machine.exports import Baseline, Export
from watcher.time_machine.history import History
from watcher.time_machine.item_keys import ItemKey, identity, identity_in
from watcher.time_machine.sources import check_start_covered, warn_if_ends_before

logger = logging.getLogger("watcher")

_TIME: Final = "approximate_creation_time"
_SECOND: Final = timedelta(seconds=1)
_STATES: Final = "id string, at double, number string, image string, exact boolean"
_json: Final = msgspec.json.encode


class ArchivesAsOf:
    """A table's items as they were, from archives and the table's export. Raises UsageError."""

    def __init__(
        self,
        spark: SparkSession,
        archives: Sequence[str],
        at: datetime,
        baseline: Baseline,
        *,
        key: ItemKey | None = None,
        filters: Iterable[str] | None = None,
    ) -> None:
        self._spark = spark
        self.at = at.replace(microsecond=0)
        self._baseline = baseline
        self._key = key
        self._filters = list(filters or ())
        record_filter(self._filters)  # raises here for a wrong one
        self._changes = changes(spark, archives)
        self.key_names = _key_names(self._changes, baseline)
        first = min(self.at, baseline.time.replace(microsecond=0))
        oldest, newest = _span(self._changes)
        check_start_covered(archives, oldest, first)
        warn_if_ends_before(archives, newest, max(self.at, baseline.time))
        self._states = self._changed()

    def _changed(self) -> DataFrame:
        """Returns the items that changed between the moment and the baseline, as they were."""
        second_end = self.at + _SECOND
        is_later = self._baseline.time < second_end
        if is_later:
            first = self._baseline.time.replace(microsecond=0) - CLOCKS_APART
            selected = _between(self._changes, first, second_end)
        else:
            selected = _between(self._changes, second_end, self._baseline.time + _SECOND)
        key = self._key

        def states(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for rows in map(pa.RecordBatch.to_pylist, batches):
                found = [
                    each
                    for each in map(archived_record, rows)
                    if key is None or key.matches_record(each.record)
                ]
                yield _states(found, is_later=is_later)

        pick = sql.max_by if is_later else sql.min_by
        order = sql.struct("at", "number")
        return (
            selected.mapInArrow(states, _STATES)
            .groupBy("id")
            .agg(pick(sql.struct("image", "exact"), order).alias("state"))
            .select("id", "state.image", "state.exact")
        )

    @property
    def exact(self) -> bool:
        """True where all types are known; plain JSON does not tell a set from a list."""
        return self._states.filter("not exact").isEmpty()

    def rows(self, *, wire: bool = False) -> DataFrame:
        """Returns the items: `keys` and `item`, in plain JSON or (`wire`) in DynamoDB's own."""
        base = self._exported().withColumnRenamed("image", "exported")
        changed = self._states.withColumn("is_changed", sql.lit(True))
        image: Column = sql.when(sql.col("is_changed"), sql.col("image"))
        joined = base.join(changed, "id", "full_outer").select(
            image.otherwise(sql.col("exported")).alias("image")
        )
        names, filters = self.key_names, self._filters

        def texts(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            test = record_filter(filters)
            for batch in batches:
                images = [text.encode() for text in batch.column("image").to_pylist()]
                records = (plain.inserted(image, names) for image in images)
                kept = [each.wire.dynamodb for each in records if test is None or test(each)]
                form = _wire if wire else plain_json
                columns = [form([bytes(each.Keys) for each in kept])]
                columns.append(form([bytes(each.NewImage) for each in kept]))
                yield pa.RecordBatch.from_arrays(
                    [pa.array(column, pa.string()) for column in columns], ["keys", "item"]
                )

        return joined.filter("image is not null").mapInArrow(texts, "keys string, item string")

    def write(self, output: str, to: str | None, *, wire: bool) -> int:
        """Prints them, a line for each, or writes them to a new folder; returns their number.

        As `jsonl` the lines of the items, as `parquet` their keys and the items as JSON. Raises
        UsageError for types that are not known, and for a folder that is there.
        """
        if wire and not self.exact:
            raise UsageError(plain.INEXACT_ARCHIVE)
        rows = self.rows(wire=wire)
        if to is None:
            count = 0
            for row in rows.toLocalIterator():
                write_json(f"{row.item}\n")
                count += 1
            return count
        if output == "parquet":
            rows.write.parquet(to)
            return self._spark.read.parquet(to).count()
        rows.select("item").write.text(to)
        return self._spark.read.text(to).count()

    def _exported(self) -> DataFrame:
        """Returns each item of the baseline: name and image, null where it was deleted since."""
        names, key = self.key_names, self._key
        found = _images(self._spark, self._baseline.full, names, key, 0)
        for number, each in enumerate(self._baseline.later, 1):
            found = found.unionByName(_images(self._spark, each, names, key, number))
        if not self._baseline.later:
            return found.select("id", "image")
        return (
            found.groupBy("id")
            .agg(sql.max_by(sql.struct("image"), "at").alias("state"))
            .select("id", "state.image")
        )


def history(
    spark: SparkSession,
    archives: Sequence[str],
    key: ItemKey,
    *,
    start: datetime | None,
    until: datetime | None,
    baseline: Baseline | None,
) -> History:
    """Returns one item's history out of archives. Raises UsageError."""
    last = None if until is None else until + timedelta(microseconds=1)
    selected = _between(changes(spark, archives), start, last)

    def of_item(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in map(pa.RecordBatch.to_pylist, batches):
            found = [
                each.record
                for each in map(archived_record, rows)
                if key.matches_record(each.record)
            ]
            texts = [[bytes(each.raw).decode() for each in found], [r.shard_id for r in found]]
            yield pa.RecordBatch.from_arrays(
                [pa.array(column, pa.string()) for column in texts], ["raw", "shard"]
            )

    rows = selected.mapInArrow(of_item, "raw string, shard string").collect()
    records: dict[str, Record] = {}
    for row in rows:
        record = Record.from_json(row.raw.encode(), row.shard)
        name = record.wire.eventID or f"{record.shard_id} {record.sequence_number}"
        records[name] = record
    made = History(sorted(records.values(), key=_order), [])
    if baseline is not None:
        for record in made.records[:1]:
            key.matches_record(record)  # from now on it knows its types
        _add_export(spark, made, baseline, key)
    return made


def _add_export(spark: SparkSession, made: History, baseline: Baseline, key: ItemKey) -> None:
    exports = [baseline.full, *baseline.later]
    frames = [_images(spark, each, (), key, number) for number, each in enumerate(exports)]
    found = [row for frame in frames for row in frame.collect()]
    image = max(found, key=lambda row: int(row.at)).image if found else None
    made.set_export(baseline.time, image, key)


def changes(spark: SparkSession, archives: Sequence[str]) -> DataFrame:
    """Returns the rows of archives' folders, with a `date` where they are laid out by it."""
    found = [_rows(spark, folder) for folder in archives]
    made = found[0]
    for each in found[1:]:
        made = made.unionByName(each, allowMissingColumns=True)
    return made


def _rows(spark: SparkSession, folder: str) -> DataFrame:
    columns = (
        f"event_id string, event_name string, {_TIME} timestamp, keys string, new_image string, "
        "old_image string, sequence_number string, size_bytes long, stream_view_type string, "
        "user_identity struct<type: string, principal_id: string>, shard_id string, date date"
    )
    try:
        frame = spark.read.parquet(folder)
    except AnalysisException as error:
        if error.getCondition() != "UNABLE_TO_INFER_SCHEMA":
            raise
        frame = spark.read.schema(columns).json(folder)
    if _TIME not in frame.columns or "keys" not in frame.columns:
        raise UsageError(f"{folder} is not an archive that python -m watcher archive wrote")
    return frame


def _between(frame: DataFrame, first: datetime | None, end: datetime | None) -> DataFrame:
    """Returns rows from `first` until before `end`; days outside are not read at all."""
    by_day = "date" in frame.columns
    if first is not None:
        frame = frame.filter(sql.col(_TIME) >= sql.lit(first))
        frame = frame.filter(sql.col("date") >= sql.lit(_day(first))) if by_day else frame
    if end is not None:
        frame = frame.filter(sql.col(_TIME) < sql.lit(end))
        frame = frame.filter(sql.col("date") <= sql.lit(_day(end))) if by_day else frame
    return frame


def _day(time: datetime) -> date:
    return time.astimezone(UTC).date()


def _span(frame: DataFrame) -> tuple[datetime | None, datetime | None]:
    """Returns the times of the oldest and the newest change."""
    ends = frame.agg(sql.min(_TIME).cast("double"), sql.max(_TIME).cast("double")).first()
    assert ends is not None
    oldest, newest = (None if end is None else datetime.fromtimestamp(end, UTC) for end in ends)
    return oldest, newest


def _key_names(frame: DataFrame, baseline: Baseline) -> tuple[str, ...]:
    """Returns the table's key names, sorted; none where no change and no export has them."""
    row = frame.select("keys").filter("keys is not null").first()
    if row is not None:
        return tuple(sorted(msgspec.json.decode(row.keys, type=dict[str, msgspec.Raw])))
    line = next(baseline.changed(), None)
    return () if line is None else tuple(name for name, _ in identity(line.Keys))


def _states(found: Sequence[ArchivedRecord], *, is_later: bool) -> pa.RecordBatch:
    """Returns each change's item: as the change has left it, or as it was before."""
    rows: dict[str, list[Any]] = {"id": [], "at": [], "number": [], "image": [], "exact": []}
    for each in found:
        record, change = each.record, each.record.wire.dynamodb
        if change.ApproximateCreationDateTime is None:
            raise StreamError("the changes have no times, so an item's past is unknown")
        image = plain.image_after(record) if is_later else plain.image_before(record)
        rows["id"].append(_json(identity(change.Keys)).decode())
        rows["at"].append(change.ApproximateCreationDateTime)
        rows["number"].append(change.SequenceNumber.zfill(64))
        rows["image"].append(image.decode() if image else None)
        rows["exact"].append(each.exact)
    types = pa.string(), pa.float64(), pa.string(), pa.string(), pa.bool_()
    arrays = [pa.array(column, kind) for column, kind in zip(rows.values(), types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, list(rows))


def _images(
    spark: SparkSession, export: Export, names: Sequence[str], key: ItemKey | None, number: int
) -> DataFrame:
    """Returns an export's items: name and image, null where it was deleted."""
    is_full = export.since is None

    def named(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            ids, images = [], []
            keys, items = (batch.column(name).to_pylist() for name in ("keys", "new_image"))
            for text, item in zip(items if is_full else keys, items, strict=True):
                raw = msgspec.Raw(text.encode())
                if key is None or key.matches_image(raw):
                    found = identity_in(raw, names) if is_full else identity(raw)
                    ids.append(_json(found).decode())
                    images.append(item)
            arrays = [pa.array(column, pa.string()) for column in (ids, images)]
            yield pa.RecordBatch.from_arrays(arrays, ["id", "image"])

    frame = export_frame(spark, export).mapInArrow(named, "id string, image string")
    return frame.withColumn("at", sql.lit(number))


def export_frame(spark: SparkSession, export: Export) -> DataFrame:
    """Returns an export's rows, their images in wire types."""
    reader = spark.read.format("dynamodb_export").option("imageFormat", "dynamodb-json")
    options = {"region": export.connection.region, "profile": export.connection.profile}
    options["endpointUrl"] = export.connection.endpoint_url
    for name, value in options.items():
        reader = reader if value is None else reader.option(name, value)
    return reader.load(export.location)


def _wire(images: Sequence[bytes]) -> list[str | None]:
    return [image.decode() for image in images]


def _order(record: Record) -> tuple[float, int]:
    change = record.wire.dynamodb
    return change.ApproximateCreationDateTime or 0.0, int(change.SequenceNumber)
