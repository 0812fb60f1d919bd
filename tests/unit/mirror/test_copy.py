"""A mirror is equal to its table at its own position, however far it lags, and whoever writes."""

from pathlib import Path

import pytest

pytest.importorskip("deltalake")

from deltalake import DeltaTable

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
    options = {"history": history, "columns": given_columns(columns), "item": form}
    ledger.write(200)
    disturbed = DisturbedTables(ledger, lambda: ledger.write(15))
    run(job(ledger, to, disturbed, form=options))
    for _ in range(2):
        assert verified(ledger, to).found == []
        ledger.write(60)
        # It lags behind by all of these.
        found = verified(ledger, to)
        assert found.found == []
        assert found.items > 10
        run(job(ledger, to, form=options))


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


def test_a_folder_that_is_no_mirror_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="it is not a mirror"):
        MirrorCopy(str(tmp_path))
