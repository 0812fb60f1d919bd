"""`verify --engine spark`: reads a table and its copy in tasks, and compares there what it can.

The driver reads the changes meanwhile, and decides about the items that have any, or differ.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence, Set
from typing import Final

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from watcher.errors import UsageError, blame
from watcher.spark.error_mapping import translating_errors
from watcher.spark.picklable import SparkPicklable
from watcher.time_machine.copies import Copy
from watcher.time_machine.item_keys import Identity
from watcher.time_machine.table import TableHandle, TablePart
from watcher.time_machine.verify import (
    NO_DIGEST,
    ComparedItem,
    ItemComparison,
    Part,
    Tally,
    unpacked,
)

_LINES: Final = "line binary, columns array<string>"
_JUDGED: Final = "line binary, equal long, differing long, names array<string>"
# A packed line: the key's hash, a digest, the part, and the line itself.
_PARSED: Final = (
    "substring(line, 1, 16) AS key",
    "substring(line, 17, 32) AS digest",
    f"substring(line, 49, 1) = X'{Part.COPY.value.encode().hex()}' AS is_copy",
    "line",
)
_IS_EQUAL: Final = (
    "count(*) = 2 AND count_if(is_copy) = 1 AND min(digest) = max(digest) "
    f"AND min(digest) != X'{NO_DIGEST.hex()}'"
)
_BATCH_BYTES: Final = 4 * 1024 * 1024
_ROWS: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
_FEW_ROWS: Final = "500"  # an item may have 400 KB


class SparkSides:
    """Both sides, read by Spark's tasks. Raises UsageError, StreamError."""

    def __init__(self, spark: SparkSession) -> None:
        if spark.conf.get("spark.speculation", "false") == "true":
            # The slower of two readings of a part could end behind the changes that are known.
            raise UsageError("verify takes spark.speculation=false", "conf")
        spark.conf.set(_ROWS, _FEW_ROWS)
        self._spark = spark
        self._lines: DataFrame | None = None
        self._first: Copy | None = None

    def read(
        self, comparison: ItemComparison, table: TableHandle, read_limit: float | None
    ) -> frozenset[str] | None:
        """Reads both sides once, now; returns the copy's columns."""
        least = 2 * self._spark.sparkContext.defaultParallelism
        scanned = table.parts(least, read_limit)
        copied = comparison.copy.parts(len(scanned))
        self._first = copied[0]
        parts: list[TablePart | Copy] = [*scanned, *copied]
        reader = PartReader(parts, comparison.of_part(copied[0]))
        tasks = self._spark.range(0, len(parts), 1, len(parts))
        with blame("with_"), translating_errors():
            # Once: another reading would be newer than the changes that are known. An executor
            # that is lost later takes its part along, and the comparison fails.
            self._lines = tasks.mapInArrow(reader.read, _LINES).localCheckpoint(
                storageLevel=StorageLevel.DISK_ONLY
            )
            found = self._lines.filter("columns IS NOT NULL").select("columns").collect()
        return frozenset(name for row in found for name in row.columns) if found else None

    def unlike(
        self, comparison: ItemComparison, changed: Iterable[Set[bytes]]
    ) -> Iterator[bytes | Tally]:
        """Yields the packed lines of items that differ or have changed, and the others' number."""
        assert self._lines is not None and self._first is not None
        lines = self._lines.filter("line IS NOT NULL").selectExpr(*_PARSED)
        keys = pa.chunked_array([pa.array(each, pa.binary()) for each in changed], pa.binary())
        # As one chunk: Spark 4.3 takes an empty one for the end.
        known = self._spark.createDataFrame(pa.table({"key": keys}).combine_chunks())
        known = known.selectExpr("key", "true AS is_changed")
        found = lines.groupBy("key").agg(sql.expr(_IS_EQUAL).alias("is_equal"))
        found = found.join(known, "key", "left").selectExpr(
            "key", "is_changed IS NOT NULL AS is_changed", "is_equal"
        )
        found = found.persist(StorageLevel.DISK_ONLY)
        is_done = sql.expr("is_equal AND NOT is_changed")
        judge = Judge(comparison.of_part(self._first))
        unlike = found.filter(~is_done).drop("is_equal")
        judged = (
            lines.join(unlike, "key")
            .repartition("key")
            .sortWithinPartitions("key")
            .select("key", "line", "is_changed")
            .mapInArrow(judge.judge, _JUDGED)
        )
        with translating_errors():
            yield Tally(found.filter(is_done).count(), 0)
            for line, equal, differing, names in judged.toLocalIterator():
                yield bytes(line) if line is not None else Tally(equal, differing, names)
        found.unpersist()


class PartReader(SparkPicklable):
    """Reads the parts of both sides, one in each task."""

    def __init__(self, parts: Sequence[TablePart | Copy], comparison: ItemComparison) -> None:
        self._parts = parts
        self._comparison = comparison

    def read(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields a part's packed lines, and the columns of a copy."""
        for number in itertools.chain.from_iterable(each.column(0).to_pylist() for each in batches):
            part = self._parts[number]
            if isinstance(part, TablePart):
                images = itertools.chain.from_iterable(part.pages())
                lines = map(self._comparison.scanned, images)
            else:
                lines = map(self._comparison.copied, part.items())
            try:
                for some in _batches(lines):
                    yield _read(some, [None] * len(some))
            except UsageError as error:
                error.option = None  # the driver names it as the command line does
                raise
            if not isinstance(part, TablePart) and part.columns is not None:
                yield _read([None], [sorted(part.columns)])


class Judge(SparkPicklable):
    """Compares items whose digests don't tell: those without changes, as the driver would."""

    def __init__(self, comparison: ItemComparison) -> None:
        self._comparison = comparison

    def judge(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields the lines of items that differ or have changed, and at last a tally."""
        self._equal = self._differing = 0
        columns = (zip(*map(pa.Array.to_pylist, each.columns), strict=True) for each in batches)
        for lines in _batches(self._kept(itertools.chain.from_iterable(columns))):
            yield _judged(lines, [None] * len(lines))
        yield _judged([None], [Tally(self._equal, self._differing, sorted(self._comparison.names))])

    def _kept(self, rows: Iterator[tuple[bytes, bytes, bool]]) -> Iterator[bytes]:
        limits = self._comparison.limits
        left, bytes_left = limits.max_differences, limits.max_difference_bytes
        for (_, is_changed), group in itertools.groupby(rows, lambda row: (row[0], row[2])):
            for item, lines in self._items(line for _, line, _ in group):
                if is_changed:
                    yield from lines
                elif not self._comparison.differs(item):
                    self._equal += 1
                elif left > 0 and bytes_left > 0:
                    left -= 1
                    bytes_left -= sum(map(len, lines))
                    yield from lines
                else:
                    self._differing += 1

    def _items(self, lines: Iterator[bytes]) -> Iterable[tuple[ComparedItem, list[bytes]]]:
        """Returns the items of one hash, one as a rule, with lines enough to explain them."""
        found: dict[Identity, tuple[ComparedItem, list[bytes]]] = {}
        for each in lines:
            line = unpacked(each)
            item, kept = found.setdefault(line.item, (ComparedItem(), []))
            self._comparison.compare(item, line)
            if line.part is not Part.COPY or item.copied <= 2:
                kept.append(each)
        return found.values()


def _batches(lines: Iterable[bytes | None]) -> Iterator[list[bytes]]:
    held: list[bytes] = []
    size = 0
    for line in filter(None, lines):
        held.append(line)
        size += len(line)
        if size > _BATCH_BYTES:
            yield held
            held, size = [], 0
    if held:
        yield held


def _read(lines: Sequence[bytes | None], columns: Sequence[list[str] | None]) -> pa.RecordBatch:
    arrays = [pa.array(lines, pa.binary()), pa.array(columns, pa.list_(pa.string()))]
    return pa.RecordBatch.from_arrays(arrays, ["line", "columns"])


def _judged(lines: Sequence[bytes | None], tallies: Sequence[Tally | None]) -> pa.RecordBatch:
    equal, differing, names = zip(*(each or (None, None, None) for each in tallies), strict=True)
    types = pa.binary(), pa.int64(), pa.int64(), pa.list_(pa.string())
    columns = zip((lines, equal, differing, names), types, strict=True)
    arrays = [pa.array(values, kind) for values, kind in columns]
    return pa.RecordBatch.from_arrays(arrays, ["line", "equal", "differing", "names"])
