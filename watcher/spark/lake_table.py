"""A table in Delta or Iceberg: its columns, its state, and Spark's SQL that changes it."""

from __future__ import annotations

import logging
import os
import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from datetime import datetime
from functools import partial
from typing import Final, TypeVar

import msgspec
import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import collect_set, count, expr, lit, parse_json
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from watcher.errors import UsageError
from watcher.mirror.columns import ITEM, RESCUED, SQL_TYPE, VARIANT, MirrorColumns, item_of
from watcher.mirror.versions import FROM, NUMBER, TO, Rows, same_key
from watcher.spark import compat
from watcher.spark.error_mapping import error_text

logger = logging.getLogger("watcher")

SETTINGS: Final[Mapping[str, Sequence[tuple[str, str]]]] = {
    "delta": (
        ("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension"),
        ("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog"),
        # Of its log; Delta's own 50 are for a cluster.
        ("spark.databricks.delta.snapshotPartitions", "4"),
    ),
    "iceberg": (
        (
            "spark.sql.extensions",
            "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        ),
    ),
}
"""The session's settings for tables of a format; Iceberg's catalogs are the user's."""
NEW: Final = "__watcher_new"
"""A column of rows that are being made: attributes of theirs that have no column yet, as JSON."""
_DIFFERS: Final = "__watcher_differs"
_OPENS: Final = "__watcher_opens"
_STATE: Final = "watcher."
_NAME: Final = re.compile(r"[\w-]+(\.[\w-]+){1,2}")
_MISSING: Final = (
    *("PATH_NOT_FOUND", "TABLE_OR_VIEW_NOT_FOUND", "SCHEMA_NOT_FOUND"),
    *("DELTA_MISSING_DELTA_TABLE", "DELTA_TABLE_NOT_FOUND"),
)
# What Delta and Iceberg say where another program (OPTIMIZE, rewrite_data_files) was faster.
_CONFLICT: Final = re.compile(
    r"DELTA_(CONCURRENT|METADATA_CHANGED|PROTOCOL_CHANGED)|Concurrent\w+Exception"
    r"|MetadataChangedException|CommitFailedException|ValidationException|conflicting files"
)
_PAUSES: Final = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0)
_Result = TypeVar("_Result")

Make = Callable[[MirrorColumns, Iterator[pa.RecordBatch]], Iterator[pa.Table]]
"""Makes rows of a frame's, on executors."""


class LakeTable:
    """A table by its path (Delta), or by its name in a catalog; it need not exist yet."""

    def __init__(self, spark: SparkSession, target: str, kind: str) -> None:
        self._spark = spark
        self._kind = kind
        if _NAME.fullmatch(target):
            self.name = ".".join(f"`{part}`" for part in target.split("."))
            self._path = None
        elif kind == "delta":
            self._path = target if "://" in target else os.path.abspath(target)
            self.name = "delta.`{}`".format(self._path.replace("`", "``"))
        else:
            raise UsageError("give CATALOG.SCHEMA.TABLE, not a path", "to", target)

    # What it is

    def schema(self) -> pa.Schema | None:
        """Returns its columns, with their comments; None where there is no table."""
        try:
            found = self._spark.table(self.name).schema
        except AnalysisException as error:
            if error.getCondition() in _MISSING:
                return None
            raise
        comments = [each.metadata.get("comment", "") for each in found.fields]
        return pa.schema(
            each.with_metadata({"comment": comment}) if comment else each
            for each, comment in zip(compat.arrow_schema(found), comments, strict=True)
        )

    def state(self) -> dict[str, str]:
        """Returns what `set_state` has stored."""
        rows = self._spark.sql(f"SHOW TBLPROPERTIES {self.name}").collect()
        names = ((row["key"], row["value"]) for row in rows)
        return {key.removeprefix(_STATE): text for key, text in names if key.startswith(_STATE)}

    def location(self) -> str:
        """Returns the folder that it is in."""
        if self._path is not None:
            return self._path
        rows = self._spark.sql(f"DESCRIBE TABLE EXTENDED {self.name}").collect()
        return next(str(row["data_type"]) for row in rows if row["col_name"] == "Location")

    # Its columns and properties

    def create(self, columns: pa.Schema, parts: str | None, state: Mapping[str, str]) -> None:
        """Creates it, without rows; `parts` is what it is partitioned by."""
        partitioned = f" PARTITIONED BY ({parts})" if parts else ""
        properties = _named(state)
        if self._kind == "iceberg" and any(SQL_TYPE in (each.metadata or {}) for each in columns):
            properties["format-version"] = "3"  # the first with VARIANT
        self._spark.sql(
            f"CREATE TABLE {self.name} ({_ddl(columns)}) USING {self._kind}{partitioned} "
            f"TBLPROPERTIES ({_texts(properties)})"
        )

    def set_state(self, state: Mapping[str, str]) -> None:
        """Stores this, beside what else it has."""
        self.set(_named(state))

    def set(self, properties: Mapping[str, str]) -> None:
        """Sets properties."""
        if properties:
            sql = f"ALTER TABLE {self.name} SET TBLPROPERTIES ({_texts(properties)})"
            self._again(lambda: self._spark.sql(sql))

    def grow(self, columns: pa.Schema) -> None:
        """Adds the columns that it lacks."""
        has = set((self.schema() or pa.schema([])).names)
        if new := [each for each in columns if each.name not in has]:
            sql = f"ALTER TABLE {self.name} ADD COLUMNS ({_ddl(pa.schema(new))})"
            self._again(lambda: self._spark.sql(sql))

    # Its rows

    @contextmanager
    def rows(
        self, frame: DataFrame, columns: MirrorColumns, own: Sequence[pa.Field], make: Make
    ) -> Iterator[tuple[DataFrame, int]]:
        """Yields the rows that `make` makes of a frame, and how many there are.

        By then the table has columns for all their attributes; `own` are those beside them.
        """
        schema = _schema(columns, own, [pa.field(NEW, pa.string())])
        # As they are now: Spark Connect pickles them as a frame is used, when they have grown.
        made_of = deepcopy(columns)
        rows = frame.mapInArrow(partial(_made, make, made_of, schema.names), schema).persist()
        try:
            total, news = rows.agg(count(lit(1)), collect_set(NEW)).collect()[0]
            for text in sorted(news):
                columns.grow(msgspec.json.decode(text))
            self.grow(columns.schema)
            schema = _schema(columns, own)
            made = rows.drop(NEW)
            if news:
                made = rows.mapInArrow(partial(_grown, columns, schema.names), schema)
            if columns.item_form == VARIANT:
                made = made.withColumn(ITEM, parse_json(ITEM))
            yield made, total
        finally:
            rows.unpersist()

    def overwrite(self, rows: DataFrame) -> None:
        """Puts these rows in the place of all there are: readers see the ones or the others."""
        self._again(lambda: rows.writeTo(self.name).overwrite(lit(True)))

    def merge(self, made: DataFrame, rows: Rows, keys: Sequence[str]) -> None:
        """Merges what `rows` has made of changes."""
        flags = {field.name for field in rows.flags}
        lines = [f"ON {rows.on(keys)}"]
        for each in rows.clauses([name for name in made.columns if name not in flags]):
            matched = "NOT MATCHED" if each.action == "insert" else "MATCHED"
            what = {
                "delete": "DELETE",
                "update": f"UPDATE SET {_assigned(each.columns)}",
                "insert": _insert(each.columns),
            }
            lines.append(f"WHEN {matched} AND ({each.condition}) THEN {what[each.action]}")
        self._merge(made, lines)

    def merge_whole(self, items: DataFrame, columns: MirrorColumns, *, is_renumbered: bool) -> None:
        """Makes the rows those of `items` by one MERGE.

        Rows that differ are updated; `is_renumbered` updates all, for another stream's numbers.
        """
        differs = "TRUE" if is_renumbered else f"NOT ({_equal(columns)})"
        lines = [
            f"ON {same_key(columns.keys)}",
            f"WHEN MATCHED AND {differs} THEN UPDATE SET {_assigned(items.columns)}",
            f"WHEN NOT MATCHED THEN {_insert(items.columns)}",
            "WHEN NOT MATCHED BY SOURCE THEN DELETE",
        ]
        self._merge(items, lines)

    def merge_whole_history(
        self, items: DataFrame, columns: MirrorColumns, *, at: datetime, is_renumbered: bool
    ) -> None:
        """Makes the present versions those of `items`, by one MERGE; others end `at` that time."""
        time, keys = f"TIMESTAMP '{at.isoformat()}'", same_key(columns.keys)
        there = self._spark.table(self.name).where(f"`{TO}` IS NULL").alias("target")
        joined = items.withColumn(FROM, expr(time)).alias("source")
        joined = joined.join(there, expr(keys), "left")
        is_new = f"target.`{NUMBER}` IS NULL OR NOT ({_equal(columns)})"
        joined = joined.selectExpr("source.*", f"{is_new} AS `{_DIFFERS}`")
        ends = joined.selectExpr("*", f"false AS `{_OPENS}`")
        opens = joined.where(f"`{_DIFFERS}`").selectExpr("*", f"true AS `{_OPENS}`")
        is_open, end = f"target.`{TO}` IS NULL", f"UPDATE SET target.`{TO}` = {time}"
        lines = [
            f"ON {keys} AND {is_open} AND NOT source.`{_OPENS}`",
            f"WHEN MATCHED AND source.`{_DIFFERS}` THEN {end}",
        ]
        if is_renumbered:
            lines.append(f"WHEN MATCHED THEN UPDATE SET {_assigned([NUMBER])}")
        lines += [
            f"WHEN NOT MATCHED AND source.`{_OPENS}` THEN {_insert(items.columns)}",
            f"WHEN NOT MATCHED BY SOURCE AND {is_open} THEN {end}",
        ]
        self._merge(ends.unionByName(opens), lines)

    def _merge(self, source: DataFrame, lines: Sequence[str]) -> None:
        view = f"watcher_{uuid.uuid4().hex}"
        source.createOrReplaceTempView(view)
        sql = "\n".join([f"MERGE INTO {self.name} AS target USING {view} AS source", *lines])
        try:
            self._again(lambda: self._spark.sql(sql).collect())
        finally:
            self._spark.catalog.dropTempView(view)

    def _again(self, write: Callable[[], _Result]) -> _Result:
        """Writes, and again where another program has changed the table meanwhile."""
        for pause in _PAUSES:
            try:
                return write()
            except (PySparkException, Py4JJavaError) as error:
                text = error_text(error)
                if not _CONFLICT.search(text):
                    raise
                logger.debug(f"Another program has changed {self.name}: {text}")
                time.sleep(pause)
        return write()


def _made(
    make: Make, columns: MirrorColumns, names: Sequence[str], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yields made rows, on an executor; the first of a table names what has no column."""
    for table in make(columns, batches):
        new = columns.lacking(table)
        text = msgspec.json.encode(new, order="sorted").decode() if new else None
        news = pa.array([text, *[None] * (len(table) - 1)], pa.string())
        yield from table.append_column(NEW, news).select(names).combine_chunks().to_batches()


def _grown(
    columns: MirrorColumns, names: Sequence[str], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yields made rows whose rescued attributes are in the columns that there are now."""
    for batch in batches:
        texts = batch[RESCUED].to_pylist()
        found = columns.rows([item_of(text.encode()) if text else {} for text in texts])
        has = {*batch.schema.names} - {RESCUED}
        arrays = [batch[name] if name in has else found[name] for name in names]
        yield pa.RecordBatch.from_arrays(arrays, names)


def _schema(columns: MirrorColumns, *more: Iterable[pa.Field]) -> StructType:
    own = [field for fields in more for field in fields]
    return from_arrow_schema(pa.schema([*columns.schema.remove_metadata(), *own]))


def _named(state: Mapping[str, str]) -> dict[str, str]:
    return {f"{_STATE}{name}": text for name, text in state.items()}


def _ddl(columns: pa.Schema) -> str:
    types = from_arrow_schema(columns.remove_metadata())
    found = []
    for each, kind in zip(columns, types.fields, strict=True):
        about = {name: text.decode() for name, text in (each.metadata or {}).items()}
        of_it = f" COMMENT {_text(about[b'comment'])}" if b"comment" in about else ""
        sql = about.get(SQL_TYPE, kind.dataType.simpleString())
        found.append(f"`{each.name}` {sql}{of_it}")
    return ", ".join(found)


def _text(text: str) -> str:
    return "'{}'".format(text.replace("\\", "\\\\").replace("'", "\\'"))


def _texts(properties: Mapping[str, str]) -> str:
    return ", ".join(f"{_text(name)} = {_text(text)}" for name, text in properties.items())


def _equal(columns: MirrorColumns) -> str:
    sides = [(f"target.`{name}`", f"source.`{name}`") for name in columns.schema.names]
    if columns.item_form == VARIANT:  # such have no equality, but their text has
        sides[-1] = (f"to_json(target.`{ITEM}`)", f"to_json(source.`{ITEM}`)")
    return " AND ".join(f"{one} <=> {other}" for one, other in sides)


def _assigned(names: Sequence[str]) -> str:
    return ", ".join(f"target.`{name}` = source.`{name}`" for name in names)


def _insert(names: Sequence[str]) -> str:
    listed = ", ".join(f"`{name}`" for name in names)
    values = ", ".join(f"source.`{name}`" for name in names)
    return f"INSERT ({listed}) VALUES ({values})"  # noqa: S608 (names without backticks)
