"""The folders of `scripts/kills`: how others read them, when to kill, and what is right."""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import duckdb
import polars
import pyarrow as pa
import pyarrow.dataset
from deltalake import DeltaTable

from tests.simulator import Written, judge
from tests.simulator.control import Control
from watcher.mirror.versions import COPIED

Rows = list[tuple[Any, ...]]
_ITEMS: Final = 45_000
_FORGOTTEN_SECONDS: Final = 3600.0


class Killed(ABC):
    """A folder, and the command that writes it."""

    words: list[str]
    goes_on: tuple[str, ...] = ("--every", "1s")
    ends: tuple[str, ...] = ("--once",)
    """What makes it end up to now."""
    begins: str
    """What the command says when it begins."""
    has_days: bool
    """Whether its rows are parted by days, and none ever goes."""
    ids: tuple[str, ...]
    """The columns that no two rows share."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def command(self, stream: str, *, once: bool) -> list[str]:
        """The words of the command line."""
        more = self.ends if once else self.goes_on
        return [*self.words, stream, "--to", str(self.path), *more]

    def prepare(self, sim: Control) -> None:
        """Write what is to be there before it begins: by default nothing."""
        del sim

    def is_gone(self, error: Exception) -> bool:
        """Whether a reader had listed a file that is not there any more, as the docs say it may."""
        return False

    @abstractmethod
    def is_there(self) -> bool:
        """Whether there is anything to read."""

    @abstractmethod
    def moments(self) -> dict[str, Callable[[], object]]:
        """What changes when it does something; to be killed just then."""

    @abstractmethod
    def readers(self) -> dict[str, Callable[[tuple[str, ...]], Rows]]:
        """How others read some of its columns."""

    @abstractmethod
    def state(self) -> str:
        """How far it is, in some words."""

    @abstractmethod
    def compare(self, sim: Control, remove_every: int) -> list[str]:
        """What is wrong with it in the end."""


class ArchiveFolder(Killed):
    """Of `archive`."""

    begins = "Archiving "
    has_days = True
    ids = ("sequence_number",)

    def __init__(self, place: Path) -> None:
        super().__init__(place / "lake")
        self.words = ["archive"]
        self._kept = place / "lake.checkpoint"

    def is_gone(self, error: Exception) -> bool:
        return isinstance(error, FileNotFoundError) or "No such file" in str(error)

    def is_there(self) -> bool:
        return any(self.path.glob("*/*.parquet"))

    def moments(self) -> dict[str, Callable[[], object]]:
        """All that it does with a batch."""
        return {
            "as a batch was written": lambda: _names(self._kept / "unfinished"),
            "as a batch was in": lambda: _time(self._kept / "watcher-batch.json"),
            "as a batch was begun": lambda: _names(self._kept / "offsets"),
            "as files were moved": lambda: len(list(self.path.glob("*/batch-*"))),
            "as Spark noted a batch": lambda: _names(self._kept / "commits"),
        }

    def readers(self) -> dict[str, Callable[[tuple[str, ...]], Rows]]:
        def in_duckdb(columns: tuple[str, ...]) -> Rows:
            files = f"read_parquet('{self.path}/**/*.parquet')"
            with duckdb.connect() as base:
                return base.execute(f"SELECT {', '.join(columns)} FROM {files}").fetchall()

        def in_pyarrow(columns: tuple[str, ...]) -> Rows:
            lake = pyarrow.dataset.dataset(self.path, format="parquet", partitioning="hive")
            return _tuples(lake.to_table(columns=list(columns)))

        return {
            "duckdb": in_duckdb,
            "polars": lambda names: polars.scan_parquet(self.path).select(names).collect().rows(),
            "pyarrow": in_pyarrow,
        }

    def state(self) -> str:
        files = Counter(path.name.partition("-")[0] for path in self.path.glob("*/*.parquet"))
        told = ", ".join(f"{count} {name} files" for name, count in sorted(files.items()))
        left = ", unfinished left" if _names(self._kept / "unfinished") else ""
        return f"{_batches(self._kept)}; {told}{left}"

    def compare(self, sim: Control, remove_every: int) -> list[str]:
        """Every change that was written is a row, once, whatever reads it, and nothing else."""
        expected = Counter((*each, _event(each, remove_every)) for each in sim.records)
        names = ("sequence_number", "shard_id", "keys", "event_name", "new_image", "old_image")
        wrong = []
        for name, read in self.readers().items():
            found = Counter(map(_change, read(names)))
            print(f"{name}: {found.total()} rows, {len(found)} of them distinct")
            if lost := expected - found:
                wrong.append(f"{name}: {lost.total()} lost, such as {next(iter(lost))}")
            if more := found - expected:
                wrong.append(f"{name}: {more.total()} too many, such as {next(iter(more))}")
        strange = [str(each) for each in self.path.rglob("*") if each.is_file()]
        return wrong + [name for name in strange if not name.endswith(".parquet")]


class MirrorFolder(Killed):
    """Of `mirror`, with a row for each item, or for each of its versions."""

    begins = "Mirroring "
    has_days = False

    def __init__(self, place: Path, *, history: bool) -> None:
        super().__init__(place / "orders")
        self.words = ["mirror", *(["--history"] if history else [])]
        self.ids = ("pk", "_sequence_number") if history else ("pk",)
        self._history = history

    def prepare(self, sim: Control) -> None:
        """Items whose changes are older than where the mirror will begin."""
        sim.bulk(_ITEMS, keys=_ITEMS)
        sim.advance(_FORGOTTEN_SECONDS)

    def is_there(self) -> bool:
        return DeltaTable.is_deltatable(str(self.path))

    def moments(self) -> dict[str, Callable[[], object]]:
        """Rows are in files, and no commit names them; and then one does."""
        return {
            "as files were written": lambda: _names(self.path),
            "as a commit was made": lambda: _names(self.path / "_delta_log"),
        }

    def readers(self) -> dict[str, Callable[[tuple[str, ...]], Rows]]:
        to = str(self.path)

        def in_pyarrow(columns: tuple[str, ...]) -> pa.Table:
            return DeltaTable(to).to_pyarrow_table(columns=list(columns))

        return {
            "duckdb": lambda columns: _in_duckdb(DeltaTable(to).to_pyarrow_dataset(), columns),
            "polars": lambda columns: polars.scan_delta(to).select(columns).collect().rows(),
            "pyarrow": lambda columns: _tuples(in_pyarrow(columns)),
        }

    def state(self) -> str:
        commits = len([name for name in _names(self.path / "_delta_log") if name[0].isdecimal()])
        return f"{commits} commits"

    def compare(self, sim: Control, remove_every: int) -> list[str]:
        """The last version of each item, and with history all since the copy, each once."""
        last = {each.key: each for each in sim.records}
        now = {
            k: each.version for k, each in last.items() if _event(each, remove_every) != "REMOVE"
        }
        wrong = []
        for name, read in self.readers().items():
            if not self._history:
                rows = read(("pk", "v"))
                print(f"{name}: {len(rows)} rows of {len(now)} items")
                if Counter(rows) != Counter(now.items()):
                    wrong.append(f"{name}: {len(set(rows) ^ set(now.items()))} differ")
                continue
            rows = read(("pk", "v", "_sequence_number", "_valid_to"))
            print(f"{name}: {len(rows)} versions of {len(last)} items")
            valid = Counter((key, version) for key, version, _, ended in rows if ended is None)
            if valid != Counter(now.items()):
                wrong.append(f"{name}: {len(set(valid) ^ set(now.items()))} differ")
            wrong += [f"{name}: {each}" for each in _broken(rows, sim.records, remove_every)]
        return wrong


_HANDLER: Final = '''"""Note each record's number."""
import os

numbers = os.open({path!r}, os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def handle(record):
    os.write(numbers, record.sequence_number.encode() + b"\\n")
'''


class HandledNumbers(Killed):
    """Of a watch's handler on Spark, which notes the changes that it was called with."""

    begins = "Starting Spark"
    has_days = False

    def __init__(self, place: Path) -> None:
        super().__init__(place / "numbers")
        self._kept = place / "checkpoint"
        (place / "handlers").mkdir()
        (place / "handlers" / "note.py").write_text(_HANDLER.format(path=str(self.path)))
        self.words = ["--engine", "spark", "--handlers", str(place / "handlers"), "--note"]
        self.words += ["--checkpoint", str(self._kept), "--from", "trim-horizon"]

    def command(self, stream: str, *, once: bool) -> list[str]:
        return [stream, *self.words, *(["--no-follow"] if once else [])]

    def is_there(self) -> bool:
        return self.path.exists()

    def moments(self) -> dict[str, Callable[[], object]]:
        """A batch is planned, its records are handled, and Spark has noted it."""
        return {
            "as a batch was begun": lambda: _names(self._kept / "offsets"),
            "as records were handled": lambda: _time(self.path),
            "as Spark noted a batch": lambda: _names(self._kept / "commits"),
        }

    def readers(self) -> dict[str, Callable[[tuple[str, ...]], Rows]]:
        """Nobody reads what a handler does."""
        return {}

    def state(self) -> str:
        return _batches(self._kept)

    def compare(self, sim: Control, remove_every: int) -> list[str]:
        """Each change was handled, an item's in their order; after a kill some come again."""
        found = judge(sim.records, self.path.read_text().split())
        print(f"{len(sim.records)} changes, {len(found.repeated)} of them handled again")
        wrong = {"lost": found.lost, "unknown": found.unknown, "out of order": found.out_of_order}
        return [
            f"{len(numbers)} {what}: {numbers[:3]}" for what, numbers in wrong.items() if numbers
        ]


JOBS: Final[Mapping[str, Callable[[Path], Killed]]] = {
    "archive": ArchiveFolder,
    "watch": HandledNumbers,
    "mirror": partial(MirrorFolder, history=False),
    "mirror-history": partial(MirrorFolder, history=True),
}
"""By the names that `scripts/kills` takes."""


def _broken(rows: Rows, written: list[Written], remove_every: int) -> list[str]:
    """What is wrong with the versions of items: all have to be there from the copy on."""
    changes: dict[str, list[Written]] = defaultdict(list)
    for each in written:
        changes[each.key].append(each)
    found: dict[str, Counter[tuple[str, int]]] = defaultdict(Counter)
    for key, version, number, _ in rows:
        found[key][number, int(version)] += 1
    wrong = []
    for key, versions in found.items():
        first = min(version for _, version in versions)
        copied = [version for number, version in versions if number == COPIED]
        # Without a copy it was not there: its first version is the next after a removal.
        begins_well = copied == [first] or (not copied and first % remove_every == 1)
        expected = Counter(
            (COPIED if each.version in copied else _padded(each.sequence_number), each.version)
            for each in changes[key]
            if each.version >= first and each.version % remove_every
        )
        if not begins_well or versions != expected:
            wrong.append(f"{key}: {(versions - expected) or (expected - versions)}")
    return wrong


def _padded(number: str) -> str:
    return number.zfill(len(COPIED))


def _event(change: Written, remove_every: int) -> str:
    """What the simulator's `bulk` has made of an item's n-th change."""
    if change.version % remove_every == 0:
        return "REMOVE"
    return "INSERT" if change.version % remove_every == 1 else "MODIFY"


def _change(row: tuple[Any, ...]) -> tuple[str, str, str, int, str]:
    """A row as `Written` has it, and its event's name."""
    number, shard, keys, event, new, old = row
    # One that removes is the next after the image that it has removed.
    version = json.loads(new)["v"] if new is not None else json.loads(old)["v"] + 1
    return shard, number, json.loads(keys)["pk"], version, event


def _in_duckdb(orders: pa.Table | pa.dataset.Dataset, columns: tuple[str, ...]) -> Rows:
    with duckdb.connect() as base:
        base.register("orders", orders)
        return _tuples(base.sql(f"SELECT {', '.join(columns)} FROM orders").to_arrow_table())


def _tuples(table: pa.Table) -> Rows:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def _batches(checkpoint: Path) -> str:
    begun, done = (
        max((int(name) for name in _names(checkpoint / log) if name.isdecimal()), default=0)
        for log in ("offsets", "commits")
    )
    return f"batch {begun} begun, {done} noted"


def _names(folder: Path) -> frozenset[str]:
    try:
        return frozenset(os.listdir(folder))
    except FileNotFoundError:
        return frozenset()


def _time(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0
