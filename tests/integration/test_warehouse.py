"""The page's dlt pipeline: DuckDB has the table's items, whatever happens to a run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import duckdb
import pytest

from tests.simulator import Simulator
from tests.support.pages import PAGES, ROOT, files

pytestmark = pytest.mark.proof

PROGRAM = "orders_to_duckdb.py"


@pytest.fixture
def sim() -> Iterator[Simulator]:
    with Simulator(table="orders", shards=2, key_names=("PK", "SK")) as simulator:
        yield simulator


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with the page's program."""
    (tmp_path / PROGRAM).write_text(files(PAGES["library.md"])[PROGRAM])
    return tmp_path


def load(sim: Simulator, place: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, PROGRAM],
        cwd=place,
        env={
            **os.environ,
            **sim.environment,
            "HOME": str(place),
            "PYTHONPATH": str(ROOT),
            "RUNTIME__DLTHUB_TELEMETRY": "false",
        },
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def put(sim: Simulator, name: str, **more: Any) -> None:
    sim.put({"PK": {"S": name}, "SK": {"S": "order"}, **more})


def stored(place: Path, columns: str = "pk, total") -> list[tuple[Any, ...]]:
    with duckdb.connect(str(place / "orders.duckdb"), read_only=True) as connection:
        return connection.sql(f"SELECT {columns} FROM shop.orders ORDER BY pk").fetchall()


def test_the_items_are_those_of_the_table_after_each_run(sim: Simulator, place: Path) -> None:
    put(sim, "ada", total={"N": "1.10"})
    put(sim, "bob", total={"N": "2"}, tags={"SS": ["a", "b"]}, blob={"B": "AAE="})
    first = load(sim, place)
    assert first.returncode == 0, first.stderr
    assert [(pk, str(total)) for pk, total in stored(place)] == [
        ("ada", "1.100000000"),
        ("bob", "2.000000000"),
    ]

    put(sim, "ada", total={"N": "3"}, who={"S": "eve"})
    put(sim, "ada", total={"N": "4"}, who={"S": "eve"})
    put(sim, "cy", total={"N": "5"})
    table = boto3.client("dynamodb", endpoint_url=sim.endpoint, region_name="us-east-1")
    table.delete_item(TableName="orders", Key={"PK": {"S": "bob"}, "SK": {"S": "order"}})
    assert load(sim, place).returncode == 0
    assert stored(place, "pk, total, who") == [("ada", 4, "eve"), ("cy", 5, None)]

    assert load(sim, place).returncode == 0
    assert stored(place, "pk, total") == [("ada", 4), ("cy", 5)]
