"""`mirror` through the real command line."""

import re
import shutil
import threading
import time
from decimal import Decimal
from pathlib import Path

import pytest

pytest.importorskip("deltalake")

import duckdb
import polars
from deltalake import DeltaTable

from tests.ledger.ledger import Ledger
from tests.simulator import Simulator
from tests.support import exports
from tests.support.program import told
from watcher.cli import main

ROOT = Path(__file__).parents[3]
DOC = ROOT / "docs" / "lake.md"


def test_a_table_is_mirrored_and_read_by_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ledger: Ledger
) -> None:
    monkeypatch.chdir(tmp_path)
    to = "lake/orders"
    mirror = ["mirror", "orders", "--to", to, "--no-follow", "--columns", "total decimal(12,2)"]
    ledger.simulator.set_environment(monkeypatch.setenv)
    ledger.change("a", {"pk": {"S": "a"}, "total": {"N": "1.5"}, "status": {"S": "paid"}})
    assert told(0, *mirror).err[-1].startswith("Done: 1 item copied, ")
    ledger.change("b", {"pk": {"S": "b"}, "total": {"N": "2"}})
    ledger.settle()
    assert told(0, *mirror).err[-1] == "Done: 1 change applied"
    assert "has the history false, not true" in told(2, *mirror, "--history").said

    made = [Path("lake"), *Path("lake").rglob("*")]
    assert {path.stat().st_mode & 0o077 for path in made} == {0}, "nobody else reads them"

    orders = DeltaTable(to).to_pyarrow_dataset()
    found = duckdb.execute("SELECT sum(total) FROM orders").fetchall()
    assert orders and found == [(polars.read_delta(to)["total"].sum(),)] == [(Decimal("3.50"),)]
    first, *_ = re.findall(r"```python\n(.*?)```", DOC.read_text(), re.DOTALL)
    exec(compile(first, "docs/lake.md", "exec"), {})


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--every", "soon"], "--every 'soon': give a duration such as"),
        (["--to", "s3a://lake/x"], "--to s3a://lake/x: give a folder or s3://…, or add --engine"),
        (["--item", "variant"], "--item variant: delta-rs writes none"),
        (["--columns", "a b c"], "--columns a b c: give NAME TYPE"),
        (["--columns", "a int, a float"], "--columns a: two types for one column"),
    ],
)
def test_what_can_not_be_is_said_in_a_line(options: list[str], text: str) -> None:
    assert text in told(2, "mirror", "orders", "--to", "x", *options).said


def test_a_copy_of_an_export_is_done_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    to = str(tmp_path / "orders")
    with Simulator(table="orders") as sim:
        sim.set_environment(monkeypatch.setenv)
        sim.put({"pk": {"S": "changed"}})
        # An export's time is in whole ms: one of the table's first is before the table.
        export = exports.full(tmp_path, [{"pk": {"S": "of the export"}}], sim.now + 0.001)
        mirror = ["mirror", "orders", "--to", to, "--no-follow", "--baseline", str(export)]
        assert main(mirror) == 0
        shutil.rmtree(export)
        assert main(mirror) == 0, "nobody needs it any more"
    keys = DeltaTable(to).to_pyarrow_table()["pk"].to_pylist()
    assert {*keys} == {"changed", "of the export"}


def test_a_stream_that_another_has_replaced_ends_it_once_all_of_that_is_in_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ledger: Ledger
) -> None:
    to = tmp_path / "orders"

    def replace() -> None:
        while not (to / "_delta_log").exists():
            time.sleep(0.05)
        ledger.change("b", {"pk": {"S": "b"}})
        news.append(ledger.simulator.enable_new_stream())

    news: list[str] = []
    ledger.simulator.set_environment(monkeypatch.setenv)
    ledger.change("a", {"pk": {"S": "a"}})
    replacing = threading.Thread(target=replace)
    replacing.start()
    done = told(3, "mirror", "orders", "--to", str(to), "--every", "1h")
    replacing.join()

    assert f"continue with {news[0]}" in done.said
    assert set(polars.read_delta(str(to))["pk"]) == {"a", "b"}


def test_the_page_names_the_jars_that_are_tested() -> None:
    named = ",".join(re.findall(r"--packages (\S+:\S+)", DOC.read_text())).split(",")
    jars = re.findall(r"[\w.]+:[\w.-]+:[\d.]+", (ROOT / "scripts/jars").read_text())
    assert len({*named}) > 2 and {*named} <= {*jars}
