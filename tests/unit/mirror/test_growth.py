"""A mirror's commits cost by their changes, and it stays small; any reader sees each of them."""

from __future__ import annotations

import errno
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")

import duckdb
import msgspec
import polars
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import write_manifest_list
from pyiceberg.table import StaticTable, Table

from watcher.aws.model import WireItem
from watcher.errors import WatcherError
from watcher.mirror import delta_table, iceberg_table
from watcher.mirror.columns import MirrorColumns
from watcher.mirror.copy import Format, open_mirror
from watcher.mirror.folder import Folder
from watcher.mirror.parts import part_of
from watcher.mirror.table import LIMITS, MirrorLimits, MirrorState, MirrorTable, StorageLimits
from watcher.mirror.versions import EveryVersion, ItemChange, LastVersion

# polars_iceberg, a faster planner, is not installed.
pytestmark = pytest.mark.filterwarnings("ignore:Iceberg scan planning")
START = datetime(2026, 11, 23, tzinfo=UTC)
KEEPS_LITTLE = StorageLimits(replaced_bytes=0, replaced_share=1.0, at_least=timedelta(0), commits=3)
FEW = replace(
    LIMITS, part_bytes=400, part_rows=2, parts=16, chunk_bytes=2_000, storage=KEEPS_LITTLE
)


class Killed(BaseException):
    pass


class Life:
    """Changes of items, all in their order, and the mirror that follows them."""

    def __init__(
        self, to: Path, *, history: bool, limits: MirrorLimits = FEW, form: Format = "delta"
    ) -> None:
        self.to = to
        self.form: Format = form
        self.limits = limits
        self.state = state_at(history)
        self.rows = EveryVersion() if history else LastVersion()
        self.items: dict[str, WireItem] = {}
        self.versions: Counter[tuple[str, str, bool]] = Counter()
        self.changes: list[ItemChange] = []
        self.mirror: MirrorTable | None = None

    def copy(self, count: int) -> None:
        """Items that are there when it begins."""
        items = [item(f"k{each}", each) for each in range(count)]
        self.items = {each["pk"]["S"]: each for each in items}
        self.versions = Counter((key, each["v"]["N"], False) for key, each in self.items.items())
        self.mirror = open_mirror(str(self.to), self.limits, form=self.form)
        columns = self.columns()
        columns.grow(items)
        schema = pa.schema([*columns.schema, *self.rows.own])
        self.mirror.create(schema, self.state)
        for first in range(0, count, 10):
            rows = self.rows.items(columns, items[first : first + 10])
            self.mirror.append(rows, self.state)

    def columns(self) -> MirrorColumns:
        return MirrorColumns({"pk": "S", "n": "N"}, pa.schema([]), self.rows.own)

    def change(self, key: str, value: int | None, name: str = "v") -> None:
        """What the stream brings; with None the item goes."""
        old = self.items.get(key)
        new = None if value is None else item(key, value, name)
        if old is None and new is None:
            return
        number = str(len(self.changes) + 1)
        kind = "REMOVE" if new is None else "MODIFY" if old else "INSERT"
        keys: WireItem = {"pk": {"S": key}, "n": {"N": "1"}}
        at = START + timedelta(seconds=len(self.changes))
        self.changes.append(ItemChange(key, at, number, kind, keys, new, old))
        if old is not None:
            before = text_of(old)
            self.versions[key, before, False] -= 1
            self.versions[key, before, True] += 1
            self.items.pop(key)
        if new is not None:
            self.items[key] = new
            self.versions[key, text_of(new), False] += 1

    def commit(self) -> None:
        """All that it has not done; opened anew after a kill, from what its commit says."""
        mirror = self.mirror or open_mirror(str(self.to), self.limits, form=self.form)
        self.mirror = None
        assert mirror.state is not None
        changes = self.changes[mirror.state.token["done"] :]
        state = state_at(self.state.history, len(self.changes))
        columns = self.columns()
        columns.adopt(mirror.schema)
        columns.grow(self.rows.attributes(changes))
        mirror.grow(columns.schema)
        mirror.merge(self.rows.merge(columns, changes), state)
        mirror.tidy(datetime.now(UTC))
        self.mirror = mirror

    def check(self) -> None:
        """Each reader sees the items, or the versions, as they are: none lost, none twice."""
        for name in READERS[self.form]:
            assert self.read(name) == self.expected(), name

    def expected(self) -> Counter[tuple[str, str, bool]]:
        if self.state.history:
            return +self.versions
        return Counter((key, text_of(each), False) for key, each in self.items.items())

    def read(self, name: str) -> Counter[tuple[str, str, bool]]:
        """Items by key, value, and whether the version has ended."""
        found = READERS[self.form][name](str(self.to)).to_pylist()
        return Counter(
            (each["pk"], text_in(each), each.get("_valid_to") is not None) for each in found
        )


def state_at(history: bool, done: int = 0) -> MirrorState:
    return MirrorState(
        stream="arn", history=history, token={"done": done}, copied=True, tidied=START
    )


def item(key: str, value: int, name: str = "v") -> WireItem:
    return {"pk": {"S": key}, "n": {"N": "1"}, name: {"N": str(value)}}


def text_of(item: WireItem) -> str:
    return str(next(value["N"] for name, value in item.items() if name not in ("pk", "n")))


def text_in(row: dict[str, Any]) -> str:
    own = ("pk", "n", "_rescued_data", "_valid_from", "_valid_to", "_sequence_number")
    found = (each for name, each in row.items() if name not in own and each is not None)
    return str(int(next(found)))


def by_duckdb(to: str) -> pa.Table:
    orders = DeltaTable(to).to_pyarrow_dataset()
    with duckdb.connect() as base:
        base.register("orders", orders)
        found: pa.Table = base.sql("SELECT * FROM orders").to_arrow_table()
        return found


def in_catalog(to: str) -> Table:
    catalog = SqlCatalog("default", uri=f"sqlite:///{to}/catalog.db")
    try:
        return catalog.load_table(("default", Path(to).name))
    finally:
        catalog.close()


def newest_metadata(to: str) -> str:
    """As DuckDB finds it, without a catalog."""
    return (Path(to) / "metadata" / "version-hint.text").read_text()


READERS: dict[Format, dict[str, Callable[[str], pa.Table]]] = {
    "delta": {
        "pyarrow": lambda to: DeltaTable(to).to_pyarrow_table(),
        "polars": lambda to: polars.scan_delta(to).collect().to_arrow(),
        "duckdb": by_duckdb,
    },
    "iceberg": {
        "pyiceberg": lambda to: in_catalog(to).scan().to_arrow(),
        "polars": lambda to: polars.scan_iceberg(in_catalog(to)).collect().to_arrow(),
        "hint": lambda to: (
            StaticTable.from_metadata(f"{to}/metadata/{newest_metadata(to)}.metadata.json")
            .scan()
            .to_arrow()
        ),
    },
}


@contextmanager
def killed_at(number: int, how: str) -> Iterator[None]:
    """Dies at the n-th thing that is done to a file: before it, after it, or in the middle."""
    done = 0

    def dying(do: Callable[..., Any]) -> Callable[..., Any]:
        def does(*arguments: Any, **options: Any) -> Any:
            nonlocal done
            done += 1
            if done == number and how == "before":
                raise Killed
            if done == number and how == "half" and do is whole:
                do(arguments[0].slice(0, 1), *arguments[1:], **options)
                raise Killed
            result = do(*arguments, **options)
            if done == number:
                raise Killed
            return result

        return does

    whole = pq.write_table
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pq, "write_table", dying(whole))
        patch.setattr(pq.ParquetWriter, "write_table", dying(pq.ParquetWriter.write_table))
        patch.setattr(delta_table, "write_deltalake", dying(write_deltalake))
        patch.setattr(iceberg_table, "write_manifest_list", dying(write_manifest_list))
        patch.setattr(SqlCatalog, "commit_table", dying(SqlCatalog.commit_table))
        for name in ("create_write_transaction", "create_checkpoint"):
            patch.setattr(DeltaTable, name, dying(getattr(DeltaTable, name)))
        for name in ("mkdir",):
            patch.setattr(Path, name, dying(getattr(Path, name)))
        patch.setattr(Folder, "delete", dying(Folder.delete))
        yield


keys = st.integers(0, 40).map("k{}".format)
changes = st.lists(
    st.tuples(keys, st.one_of(st.none(), st.integers(0, 10**6)), st.sampled_from(["v", "w"])),
    min_size=1,
    max_size=12,
)
kills = st.tuples(st.integers(1, 40), st.sampled_from(["before", "half", "after"]))


@pytest.mark.parametrize(
    ("form", "history"),
    [("delta", False), ("delta", True), ("iceberg", False), ("iceberg", True)],
)
@settings(max_examples=12, deadline=None)
@given(copied=st.integers(0, 35), commits=st.lists(st.tuples(changes, kills), max_size=7))
def test_killed_between_any_two_things_it_does_to_files_each_commit_is_what_others_read(
    form: Format,
    history: bool,
    copied: int,
    commits: list[tuple[list[tuple[str, int | None, str]], tuple[int, str]]],
) -> None:
    with tempfile.TemporaryDirectory() as name:
        life = Life(Path(name) / "orders", history=history, form=form)
        life.copy(copied)
        life.check()
        for changed, (number, how) in commits:
            for change in changed:
                life.change(*change)
            before = life.read("polars")
            try:
                with killed_at(number, how):
                    life.commit()
            except Killed:
                for reader in READERS[form]:
                    assert life.read(reader) in (before, life.expected())
                life.commit()
            life.check()


def test_a_commit_writes_by_its_changes_not_by_the_table(tmp_path: Path) -> None:
    written = {}
    for size in (10_000, 40_000):
        to = tmp_path / str(size)
        life = Life(to, history=False, limits=LIMITS)
        life.copy(0)
        for each in range(size):
            life.change(f"k{each}", each)
        life.commit()
        life.commit()  # has grown, and is parted anew
        before = set(to.rglob("*.*"))
        for each in range(20):
            life.change(f"k{each * 97}", 1)
        life.commit()
        written[size] = sum(path.stat().st_size for path in set(to.rglob("*.*")) - before)

    assert written[40_000] < 2 * written[10_000]


@pytest.mark.parametrize("chunk_bytes", [2_000, 10**7])
def test_it_grows_and_shrinks_and_its_files_with_it(tmp_path: Path, chunk_bytes: int) -> None:
    limits = replace(FEW, part_bytes=50, parts=200, chunk_bytes=chunk_bytes)
    life = Life(tmp_path / "orders", history=False, limits=limits)
    life.copy(20)
    for wanted, files in ((3_000, 200), (10, 10)):
        for each in range(3_000):
            life.change(f"k{each}", each if each < wanted else None)
        life.commit()
        life.change("k1", 5)
        life.commit()
        life.check()
        assert len(DeltaTable(str(life.to)).file_uris()) <= files


def test_after_hundreds_of_commits_the_folder_is_a_few_times_the_table(tmp_path: Path) -> None:
    kept = StorageLimits(replaced_bytes=0, at_least=timedelta(0), commits=5)
    life = Life(tmp_path / "orders", history=False, limits=replace(LIMITS, storage=kept))
    life.copy(0)
    for each in range(20_000):
        life.change(f"k{each}", each)
    rng, largest = random.Random(1), 0.0
    for number in range(150):
        life.commit()
        for _ in range(3):
            life.change(f"k{rng.randrange(20_000)}", rng.randrange(10**6))
        if number > 10:
            every = sum(path.stat().st_size for path in life.to.rglob("*") if path.is_file())
            table = DeltaTable(str(life.to)).get_add_actions(flatten=True)
            largest = max(largest, every / sum(pa.table(table)["size_bytes"].to_pylist()))
    life.commit()
    life.check()

    assert largest <= 5
    assert len(list((life.to / "_delta_log").glob("*.json"))) < 40


def test_older_versions_are_read_as_long_as_they_are_kept(tmp_path: Path) -> None:
    kept = StorageLimits(
        replaced_bytes=0,
        replaced_share=0.0,
        at_least=timedelta(hours=1),
        unfinished_after=timedelta(0),
    )
    life = Life(tmp_path / "orders", history=False, limits=replace(FEW, storage=kept))
    life.copy(30)
    seen = {}
    for number in range(12):
        life.change(f"k{number}", 1000 + number)
        life.commit()
        assert life.mirror is not None
        seen[life.mirror.version] = dict(life.items)
    for version, items in seen.items():
        rows = DeltaTable(str(life.to), version=version).to_pyarrow_table().to_pylist()
        assert {each["pk"]: text_in(each) for each in rows} == {
            key: text_of(each) for key, each in items.items()
        }


@pytest.mark.parametrize("history", [False, True])
def test_a_mirror_of_a_former_version_goes_on(tmp_path: Path, history: bool) -> None:
    """Its files have other names, and were merged by delta-rs."""
    life = Life(tmp_path / "orders", history=history)
    life.copy(25)
    table = DeltaTable(str(life.to))
    source = table.to_pyarrow_table().slice(0, 5)
    state = state_at(history)
    properties = CommitProperties(
        custom_metadata={
            "watcher": msgspec.json.encode(msgspec.structs.replace(state, number=90)).decode()
        },
        app_transactions=[Transaction("watcher-mirror", 90)],
    )
    merging = table.merge(
        source, "t.pk = s.pk", source_alias="s", target_alias="t", commit_properties=properties
    )
    merging.when_matched_update_all().execute()
    life.mirror = None

    for each in range(30):
        life.change(f"k{each}", each + 500)
        if each % 4 == 0:
            life.change(f"k{each}", None)
        if each % 10 == 0:
            life.commit()
            life.check()
    life.commit()
    life.check()


def test_what_others_make_of_its_files_is_parted_again(tmp_path: Path) -> None:
    life = Life(tmp_path / "orders", history=True)
    life.copy(30)
    for each in range(30):
        life.change(f"k{each}", each + 500)
    life.commit()
    DeltaTable(str(life.to)).optimize.compact()
    life.mirror = None
    for each in range(0, 30, 3):
        life.change(f"k{each}", None)
    life.commit()
    life.check()


def test_a_full_disk_ends_it_in_a_line_and_the_same_command_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    life = Life(tmp_path / "orders", history=False)
    life.copy(30)
    life.change("k1", 1000)
    for module, name in ((pq.ParquetWriter, "write_table"), (pq, "write_table")):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, full)
            with pytest.raises(WatcherError, match=r"orders: .*No space left"):
                life.commit()
    life.commit()
    life.check()


def test_ended_versions_do_not_become_a_file_a_commit_for_ever(tmp_path: Path) -> None:
    life = Life(tmp_path / "orders", history=True)
    life.copy(5)
    for each in range(140):
        life.change("k1", each)
        life.commit()
    life.check()

    assert len(DeltaTable(str(life.to)).file_uris()) < 80


def test_a_key_is_in_the_part_that_it_was_in_for_ever() -> None:
    """Or a change would not find its row, and the item would be there twice."""
    numbers = pa.array([Decimal("1"), Decimal("-2.5")], pa.decimal128(38, 18))
    texts, binary = pa.array(["a", "ü", ""]), pa.array([b"a", b"\xff", b""])
    assert part_of([texts], 1000) == [907, 789, 0]
    assert part_of([texts, binary], 1000) == [539, 645, 757]
    assert part_of([numbers], 1000) == [417, 753]
    assert part_of([pa.array([START], pa.timestamp("us", tz="UTC"))], 1000) == [740]
    assert part_of([pa.array([START.date()])], 1000) == [320]
    assert part_of([pa.array([7])], 1000) == [346]
    assert part_of([pa.array([1.5])], 1000) == [761]
