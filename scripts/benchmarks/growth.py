"""What a commit of a mirror costs in small and large tables, beside delta-rs's own MERGE."""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

from scripts.benchmarks.replay import Replay
from scripts.benchmarks.results import Row
from watcher.aws.model import WireItem
from watcher.mirror.columns import MirrorColumns
from watcher.mirror.copy import open_mirror
from watcher.mirror.table import LIMITS, MirrorLimits, MirrorState, StorageLimits
from watcher.mirror.versions import ItemChange, LastVersion

_SIZES = (1_000, 100_000, 1_000_000)
_CHANGES = 100
_COMMITS = 9
_LONG_COMMITS = 150
# As many commits as are made in 5 minutes, at one every 10 s.
_KEPT_COMMITS = 30
_STATE = MirrorState(stream="arn", history=False, token={}, copied=True, tidied=datetime.now(UTC))


def growth(_: Replay) -> Iterator[Row]:
    """100 changes of random items, in tables of 1,000 to 1,000,000."""
    seconds: dict[int, list[float]] = {}
    for size in _SIZES:
        with tempfile.TemporaryDirectory(prefix="growth-") as name:
            bench = _Mirror(Path(name), size)
            theirs = [_measured(bench.merge_by_delta) for _ in range(_COMMITS)]
            by_delta = [bench.written(bench.merge_by_delta) / 1e6 for _ in range(3)]
            bench.commit()  # parts the table
            ours = [_measured(bench.commit) for _ in range(_COMMITS)]
            seconds[size] = [each * 1000 for each in ours]
            merged = [each * 1000 for each in theirs]
            yield Row(f"a commit at {size:,} items", "ms", seconds[size], compared=merged)
            written = [bench.written(bench.commit) / 1e6 for _ in range(_COMMITS)]
            note = f"MERGE: {statistics.median(by_delta):.3g}"
            aim = 1.0 if size == _SIZES[-1] else None
            yield Row(f"written at {size:,} items", "MB", written, at_most=aim, note=note)
    pairs = zip(seconds[_SIZES[-1]], seconds[_SIZES[0]], strict=True)
    yield Row("a commit at 1M, times one at 1k", "", [a / b for a, b in pairs], at_most=3.0)
    yield Row("largest folder in 150 commits at 1M, times the table", "", [_folder()], at_most=5.0)


def _folder() -> float:
    """The largest that it is after a commit, of a table that nothing has made small."""
    with tempfile.TemporaryDirectory(prefix="growth-") as name:
        kept = StorageLimits(at_least=timedelta(0), commits=_KEPT_COMMITS)
        bench = _Mirror(Path(name), _SIZES[-1], replace(LIMITS, storage=kept))
        largest = 0.0
        for number in range(_LONG_COMMITS):
            bench.commit()
            if number % 5 == 0:
                largest = max(largest, bench.folder_bytes / bench.table_bytes)
        return largest


def _measured(do: Callable[[], None]) -> float:
    began = time.perf_counter()
    do()
    return time.perf_counter() - began


class _Mirror:
    """A table of so many items in a folder."""

    def __init__(self, folder: Path, size: int, limits: MirrorLimits = LIMITS) -> None:
        self._folder = folder / "orders"
        self._size = size
        self._random = random.Random(size)
        self._rows = LastVersion()
        self._columns = MirrorColumns({"pk": "S"}, pa.schema([]), self._rows.own)
        self._columns.grow([self._item(0)])
        self._table = open_mirror(str(self._folder), limits)
        self._table.create(self._columns.schema, _STATE)
        for first in range(0, size, LIMITS.items):
            items = [self._item(each) for each in range(first, min(size, first + LIMITS.items))]
            self._table.append(self._rows.items(self._columns, items), _STATE)

    @property
    def table_bytes(self) -> int:
        """What the newest version takes."""
        files = pa.table(DeltaTable(str(self._folder)).get_add_actions(flatten=True))
        return sum(files["size_bytes"].to_pylist())

    @property
    def folder_bytes(self) -> int:
        """What all takes, the log, too."""
        return sum(each.stat().st_size for each in self._folder.rglob("*") if each.is_file())

    def commit(self) -> None:
        """One of 100 changes, as `mirror` makes it."""
        changes = [self._change(each) for each in self._some()]
        self._table.merge(self._rows.merge(self._columns, changes), _STATE)
        self._table.tidy(datetime.now(UTC))

    def merge_by_delta(self) -> None:
        """The same by delta-rs, which rewrites the files that hold a changed row."""
        rows = self._rows.items(self._columns, [self._item(each) for each in self._some()])
        table = DeltaTable(str(self._folder))
        merging = table.merge(rows, "t.pk = s.pk", source_alias="s", target_alias="t")
        merging.when_matched_update_all().execute()
        self._table = open_mirror(str(self._folder))

    def written(self, do: Callable[[], None]) -> int:
        """The bytes of the files that it adds."""
        before = {each for each in self._folder.rglob("*") if each.is_file()}
        do()
        after = {each for each in self._folder.rglob("*") if each.is_file()}
        return sum(each.stat().st_size for each in after - before)

    def _some(self) -> list[int]:
        return self._random.sample(range(self._size), _CHANGES)

    def _item(self, number: int) -> WireItem:
        status = self._random.choice(["open", "paid", "sent"])
        total, version = self._random.randrange(100_000) / 100, self._random.randrange(1_000)
        return {
            "pk": {"S": f"order-{number:08}"},
            "status": {"S": status},
            "total": {"N": str(total)},
            "v": {"N": str(version)},
        }

    def _change(self, number: int) -> ItemChange:
        new = self._item(number)
        key: WireItem = {"pk": new["pk"]}
        return ItemChange(str(number), datetime.now(UTC), "1", "MODIFY", key, new, None)
