"""What a commit of a mirror costs: a MERGE rewrites what it touches, the more the larger."""

from __future__ import annotations

import json
import random
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

from scripts.benchmarks.replay import Replay
from scripts.benchmarks.results import Row
from tests.support.lakes import Lake
from watcher.aws.model import WireItem
from watcher.mirror.columns import MirrorColumns
from watcher.mirror.job import ITEMS
from watcher.mirror.table import MirrorState, MirrorTable
from watcher.mirror.versions import EveryVersion, ItemChange, LastVersion, Rows

_SIZES = (1_000, 100_000, 1_000_000)
_CHANGES = 100
# The changes of a micro-batch, and the most seconds that they may take.
_MERGES = {"delta": {1_000: 3.0, 100_000: 8.0}, "iceberg": {1_000: 3.0, 100_000: 8.0}}
_COMMITS = 9
_NOW = datetime.now(UTC)


def lake(_: Replay) -> Iterator[Row]:
    """A commit by delta-rs, and by Spark's MERGE."""
    yield from _growth()
    for kind, at_most in _MERGES.items():
        with tempfile.TemporaryDirectory(prefix="lake-") as name:
            target = Lake(kind, Path(name))
            counts = ",".join(map(str, at_most))
            program = ("scripts.benchmarks.lake_merges", *target.words, str(_SIZES[-1]), counts)
            found = [json.loads(line) for line in target.output(*program).splitlines()]
        for count, seconds in at_most.items():
            taken = [each["seconds"] for each in found if each["changes"] == count]
            yield Row(f"{kind}: MERGE of {count:,} into 1 M", "s", taken, at_most=seconds)


def _growth() -> Iterator[Row]:
    """100 changes of random items, in tables of 1,000 to 1,000,000."""
    for rows in (LastVersion(), EveryVersion()):
        title = ", with history" if isinstance(rows, EveryVersion) else ""
        for size in _SIZES:
            with tempfile.TemporaryDirectory(prefix="growth-") as name:
                mirror = _Mirror(Path(name), size, rows)
                seconds, written = zip(*(mirror.commit() for _ in range(_COMMITS)), strict=True)
                at_most = 2_000.0 if size == _SIZES[-1] else None
                taken = [each * 1000 for each in seconds]
                yield Row(f"a commit at {size:,} items{title}", "ms", taken, at_most=at_most)
                megabytes = [each / 1e6 for each in written]
                yield Row(f"written at {size:,} items{title}", "MB", megabytes)


class _Mirror:
    """A table of so many items in a folder."""

    def __init__(self, folder: Path, size: int, rows: Rows) -> None:
        self._folder = folder / "orders"
        self._size = size
        self._random = random.Random(size)
        self._rows = rows
        self._number = 0
        self._columns = MirrorColumns({"pk": "S"}, pa.schema([]), rows.own)
        self._columns.grow({"status": "S", "total": "N", "v": "N"})
        self._table = MirrorTable(str(self._folder))
        self._state = MirrorState(
            stream="arn",
            history=isinstance(rows, EveryVersion),
            redaction="",
            token={},
            copied_at=_NOW,
            vacuumed=_NOW,
        )
        self._table.create(pa.schema([*self._columns.schema, *rows.own]), self._state)
        for first in range(0, size, ITEMS):
            items = [self._item(each) for each in range(first, min(size, first + ITEMS))]
            self._table.append(rows.items(self._columns, items), self._state)
        self._table.compact()

    def commit(self) -> tuple[float, int]:
        """Returns the seconds and bytes of one commit of 100 changes, as `mirror` makes it."""
        before = {each for each in self._folder.rglob("*") if each.is_file()}
        changes = [self._change(each) for each in self._random.sample(range(self._size), _CHANGES)]
        began = time.perf_counter()
        made = self._rows.changes(self._columns, changes)
        self._table.merge(made, self._rows, self._columns.keys, self._state)
        seconds = time.perf_counter() - began
        after = {each for each in self._folder.rglob("*") if each.is_file()}
        return seconds, sum(each.stat().st_size for each in after - before)

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
        new, old = self._item(number), self._item(number)
        self._number += 1
        key: WireItem = {"pk": new["pk"]}
        return ItemChange(str(number), _NOW, f"{self._number:040}", "MODIFY", key, new, old)
