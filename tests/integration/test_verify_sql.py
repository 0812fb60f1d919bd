"""A table of a SQL database as a copy: a real PostgreSQL, and SQLite through SQLAlchemy."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy

from tests.simulator import Simulator
from tests.support.hand_clock import HandClock
from watcher.cli import main

LONG = "12345678901234567890.123456789012345678"
ITEMS: list[dict[str, Any]] = [
    {
        "pk": {"S": f"order-{number}"},
        "total": {"N": LONG if number == 3 else str(number)},
        "paid": {"BOOL": number % 2 == 0},
        "raw": {"B": "AAECAw=="},
        "lines": {"L": [{"M": {"sku": {"S": "ä"}, "price": {"N": LONG}}}]},
        "tags": {"SS": ["a", "b"]},
    }
    for number in range(1_200)
]


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Simulator]:
    began = time.time() - 3600
    monkeypatch.setattr("watcher.time_machine.sources.CLOCK", HandClock())
    monkeypatch.chdir(tmp_path)
    with Simulator(table="orders", clock=lambda: began) as simulator:
        for name, value in simulator.environment.items():
            monkeypatch.setenv(name, value)
        for item in ITEMS:
            simulator.put(item)
        simulator.advance(3600)
        yield simulator


def fill(url: str, types: str) -> sqlalchemy.Engine:
    engine = sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool)
    rows = [
        {
            "id": item["pk"]["S"],
            "total": item["total"]["N"],
            "paid": item["paid"]["BOOL"],
            "raw": b"\x00\x01\x02\x03",
            "lines": json.dumps([{"sku": "ä"}]).replace("}", f', "price": {LONG}}}'),
            "tags": '["b", "a"]',
        }
        for item in ITEMS
    ]
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text(f'CREATE TABLE "Orders" ({types})'))
        values = ":id, :total, :paid, :raw, :lines, :tags"
        connection.execute(sqlalchemy.text(f'INSERT INTO "Orders" VALUES ({values})'), rows)
    return engine


def check(url: str, engine: sqlalchemy.Engine, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["verify", "orders", "--with", url, "--map", "pk=id"]
    assert main(command) == 0, capsys.readouterr()
    printed = capsys.readouterr()
    assert printed.out.endswith(": 1,200 items, 0 differ\n")
    with engine.begin() as connection:
        for change in (
            "UPDATE \"Orders\" SET total = 12.5 WHERE id = 'order-7'",
            "DELETE FROM \"Orders\" WHERE id = 'order-8'",
        ):
            connection.execute(sqlalchemy.text(change))
    assert main(command) == 1
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.endswith(": 1,200 items, 2 differ")
    assert lines[0] == (
        "  pk=order-7   total: 12.5 there, 7 here   no change explains it: written there by hand?"
    )
    assert lines[1].startswith("  pk=order-8   only here   change ")


def test_a_table_of_postgresql_is_compared_type_by_type(
    shop: Simulator, database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    types = "id text, total numeric, paid boolean, raw bytea, lines jsonb, tags json"
    engine = fill(database, types.replace("jsonb", "text").replace("json", "text"))
    with engine.begin() as connection:
        for column, kind in (("lines", "jsonb"), ("tags", "json")):
            change = f'ALTER TABLE "Orders" ALTER {column} TYPE {kind} USING {column}::{kind}'
            connection.execute(sqlalchemy.text(change))
    check(f"{database}&table=Orders", engine, capsys)
    nowhere = "postgresql+psycopg://me:secret@/postgres?host=/nowhere&table=Orders"
    for wrong, reason in (
        (f"{database}&table=nothing", "can't read"),
        (database, "give ?table=NAME"),
        (nowhere, "can't read"),
        ("nosuch://x/y?table=z", "can't read nosuch://x/y?table=z: Can't load plugin"),
    ):
        assert main(["verify", "orders", "--with", wrong]) == 2
        *_, line = capsys.readouterr().err.splitlines()
        assert line.startswith("error: --with") and reason in line
        assert "secret" not in line


def test_sqlite_is_read_through_sqlalchemy_as_well(
    shop: Simulator, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"sqlite+pysqlite:///{tmp_path}/shop.db"
    types = "id text, total text, paid boolean, raw blob, lines text, tags text"
    check(f"{url}?table=Orders", fill(url, types), capsys)
