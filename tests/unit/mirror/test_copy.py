"""A mirror is equal to its table at its own position, however far it lags, and whoever writes."""

import hashlib
from pathlib import Path

import pytest

pytest.importorskip("deltalake")

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from tests.ledger.ledger import DisturbedTables, Ledger
from tests.unit.mirror.test_job import job, run
from tests.unit.mirror.test_job import to as to
from watcher.errors import UsageError
from watcher.mirror.columns import given_columns
from watcher.mirror.copy import MirrorCopy
from watcher.time_machine.verify import Verification, Verifier


def verified(ledger: Ledger, to: Path) -> Verification:
    tables = DisturbedTables(ledger, lambda: ledger.write(5))
    return Verifier(ledger.sources(tables), MirrorCopy(str(to))).run()


@pytest.mark.parametrize(
    ("history", "columns", "form"),
    [
        (False, "", None),
        (True, "a decimal(12,2), b string, c timestamp, d float", None),
        (True, "d float", "json"),
    ],
)
def test_no_difference_is_made_up(
    to: Path, history: bool, columns: str, form: str | None, ledger: Ledger
) -> None:
    given = given_columns(columns) if columns else None
    ledger.write(200)
    disturbed = DisturbedTables(ledger, lambda: ledger.write(15))
    run(job(ledger, to, disturbed, history=history, given=given, item_form=form))
    for _ in range(2):
        assert verified(ledger, to).found == []
        ledger.write(60)
        # It lags behind by all of these.
        found = verified(ledger, to)
        assert found.found == []
        assert found.items > 10
        run(job(ledger, to, history=history, given=given, item_form=form))


def test_a_mirror_that_is_still_catching_up_is_not_wrong(to: Path, ledger: Ledger) -> None:
    ledger.write(100)
    copying = job(ledger, to, DisturbedTables(ledger, lambda: ledger.write(30)), limit=7)
    copying.run(1.0, lambda: copying.changes >= 25)
    assert copying.items
    for _ in range(4):
        ledger.write(5)
        assert verified(ledger, to).found == []
        more = job(ledger, to, limit=7)
        more.run(1.0, lambda: more.changes >= 10)  # noqa: B023


def test_a_row_that_somebody_has_changed_is_found(to: Path, ledger: Ledger) -> None:
    ledger.change("a", {"pk": {"S": "a"}, "city": {"S": "Koeln"}, "n": {"N": "1"}})
    ledger.change("b", {"pk": {"S": "b"}, "city": {"S": "Bonn"}})
    run(job(ledger, to))
    table = DeltaTable(str(to))
    table.update(updates={"city": "'Köln'"}, predicate="pk = 'a'")
    table.delete("pk = 'b'")
    found = verified(ledger, to)
    assert {
        (item.key["pk"]["S"], each.attribute, each.missing and each.missing.kind)
        for item in found.found
        for each in item.differences
    } == {("a", "city", None), ("b", None, "INSERT")}


def test_memory_holds_some_rows_of_a_file_however_many_there_are(to: Path, ledger: Ledger) -> None:
    ledger.change("a", {"pk": {"S": "a"}, "text": {"S": "x"}})
    run(job(ledger, to))
    rows = DeltaTable(str(to)).to_pyarrow_table()
    texts = pa.array([f"{number:01000}" for number in range(1_000)])
    file = pa.table({**{name: [None] * 1_000 for name in rows.column_names}, "text": texts})
    for _ in range(10):
        write_deltalake(to, file.cast(rows.schema), mode="append")
    most, before = 0, pa.total_allocated_bytes()
    for item in MirrorCopy(str(to)).items():
        hashlib.sha256(str(item).encode() * 30)  # slower than Arrow reads
        most = max(most, pa.total_allocated_bytes() - before)
    assert most < 6 * 1024 * 1024  # of ten; a file has one


def test_a_folder_that_is_no_mirror_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="it is not a mirror"):
        MirrorCopy(str(tmp_path))
