"""`mirror --engine spark`: real Delta and Iceberg tables, by the real command line."""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from tests.simulator import RemoteSimulator, Simulator
from tests.support.lakes import Lake
from watcher.cli import main
from watcher.mirror.versions import COPIED

pytestmark = pytest.mark.spark


def item(key: str, total: str, **more: Any) -> dict[str, Any]:
    return {"pk": {"S": key}, "total": {"N": total}, **more}


def totals(lake: Lake) -> dict[str, Decimal]:
    return {row["pk"]: row["total"] for row in lake.rows()}


def test_a_delta_table_is_kept_equal_by_spark_s_merge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = Lake("delta", tmp_path)
    with Simulator.spawn(table="orders", shards=2) as sim:
        for name, value in sim.environment.items():
            monkeypatch.setenv(name, value)
        for number in range(4):
            sim.put(item(f"k{number}", f"{number}.5"))
        with lake.mirror(sim.environment, "--every", "1s") as job:
            job.wait_for_status("Merging the changes")
            sim.put(item("k1", "10", city={"S": "Bern"}))
            sim.put(item("k9", "1"))
            sim.put(item("k9", "9.25"))
            for key in ("k0", "k2"):
                sim.remove(key)
            sim.put(item("k2", "20"))
            job.wait_for(lambda: len(found := totals(lake)) == 4 and found.get("k2") == 20)
            assert job.end() == 0
        rows = {row["pk"]: row for row in lake.rows()}
        assert {key: row["total"] for key, row in rows.items()} == {
            "k1": 10,
            "k2": 20,
            "k3": Decimal("3.5"),
            "k9": Decimal("9.25"),
        }
        assert rows["k1"]["city"] == "Bern"
        assert (
            rows["k3"]["_sequence_number"] == COPIED and len(rows["k9"]["_sequence_number"]) == 40
        )
        assert main(["verify", "orders", "--with", lake.target]) == 0
        assert "4 items, 0 differ" in capsys.readouterr().out
        assert main(["mirror", "orders", "--to", lake.target, "--no-follow"]) == 2
        assert "is of --engine spark" in capsys.readouterr().err


class Shop:
    """A table that is written to at random by a thread, and all that was written."""

    def __init__(self, sim: RemoteSimulator, seed: int) -> None:
        self.sim = sim
        self.now: dict[str, str] = {}
        self.past: dict[str, list[tuple[str, str | None]]] = defaultdict(list)
        self._random = random.Random(seed)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._write)

    def change(self) -> None:
        """Put, change or remove an item; every fourth time the same one."""
        chance = self._random.random()
        key = "hot" if chance < 0.25 else f"k{self._random.randrange(60)}"
        if key in self.now and self._random.random() < 0.3:
            self.past[key].append((self.sim.remove(key).zfill(40), None))
            del self.now[key]
            return
        total = str(self._random.randrange(10_000))
        name = f"a{self._random.randrange(12)}"  # attributes that come one after the other
        more = {name: {"S": total}} if self._random.random() < 0.1 else {}
        self.past[key].append((self.sim.put(item(key, total, **more)).zfill(40), total))
        self.now[key] = total

    def _write(self) -> None:
        while not self._is_over.is_set():
            for _ in range(20):
                self.change()
            if self._random.random() < 0.05:
                self.sim.rotate("all")
            elif self._random.random() < 0.05 and len(self.sim.open_shards) < 6:
                self.sim.split()
            time.sleep(0.2)

    def __enter__(self) -> Shop:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._is_over.set()
        self._thread.join()


@pytest.mark.proof
@pytest.mark.parametrize("history", [False, True])
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_killed_at_any_moment_it_holds_each_version_once(
    kind: str, history: bool, tmp_path: Path
) -> None:
    lake = Lake(kind, tmp_path)
    options = ["--history"] if history else []
    with Simulator.spawn(table="orders", shards=2) as sim:
        with Shop(sim, 7) as shop:
            time.sleep(4)  # the copy has items whose changes are before it
            begun = {key: len(past) for key, past in shop.past.items()}
            for seconds in (0.3, 4.0, 9.0, 2.5):
                with lake.mirror(sim.environment, "--every", "1s", *options) as job:
                    job.wait_for_status("Merging the changes")
                    time.sleep(seconds)
                    job.kill()
        lake.run(sim.environment, *options)
    rows = lake.rows()
    current = [row for row in rows if row.get("_valid_to") is None]
    assert {row["pk"]: str(int(Decimal(row["total"]))) for row in current} == shop.now
    assert len(current) == len(shop.now)
    if history:
        versions: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for row in sorted(rows, key=lambda row: row["_sequence_number"]):
            versions[row["pk"]].append(row)
        for key, past in shop.past.items():
            each = [row for row in versions[key] if row["_sequence_number"] != COPIED]
            numbers = [row["_sequence_number"] for row in each]
            made = [number for number, total in past if total is not None]
            assert numbers == made[len(made) - len(numbers) :], "lost or doubled"
            first = begun.get(key, 0)
            assert {number for number, total in past[first:] if total is not None} <= {*numbers}
            ends = [str(row.get("_valid_to")) for row in versions[key]]
            begins = [str(row.get("_valid_from")) for row in versions[key]]
            assert all(end <= begin for end, begin in zip(ends, begins[1:], strict=False)), key
