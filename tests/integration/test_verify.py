"""Every block of docs/verify.md runs as it is written."""

import json
import re
import shlex
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("deltalake")

import duckdb
from deltalake import DeltaTable, write_deltalake

from tests.simulator import Simulator
from tests.support import pages
from tests.support.hand_clock import HandClock
from watcher.cli import main

BLOCKS = pages.blocks(pages.PAGES["verify.md"])
COMMANDS = [
    line.removeprefix("python -m watcher ")
    for kind, text in BLOCKS
    for line in text.splitlines()
    # Another table is test_verify_local's.
    if kind == "sh" and "--with orders-copy" not in line and "--apply" not in line
]
CONSOLE = [text for kind, text in BLOCKS if kind == "console"]


def key(name: str, order: int) -> dict[str, dict[str, str]]:
    return {"PK": {"S": name}, "SK": {"S": f"order-{order}"}}


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Simulator]:
    """Orders of an hour ago, and a few changes since."""
    began = time.time() - 3600
    monkeypatch.setattr("watcher.time_machine.sources.CLOCK", HandClock())
    monkeypatch.chdir(tmp_path)
    with Simulator(table="orders", key_names=("PK", "SK"), clock=lambda: began) as simulator:
        for name, value in simulator.environment.items():
            monkeypatch.setenv(name, value)
        for number in range(29):
            simulator.put({**key("user", number), "total": {"N": str(number)}})
        simulator.put({**key("eve", 9), "city": {"S": "Koeln"}})
        simulator.put({**key("ada", 7), "total": {"N": "250"}})
        simulator.put({**key("bob", 2), "total": {"N": "7"}})
        simulator.advance(1800)
        simulator.put({**key("ada", 7), "total": {"N": "260"}})
        simulator.client("dynamodb").delete_item(TableName="orders", Key=key("bob", 2))
        simulator.advance(1800)
        yield simulator


@pytest.mark.proof
def test_the_first_block_shows_what_is_printed(
    shop: Simulator, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(shlex.split("mirror orders --to mirror/orders --once")) == 0
    command = "verify orders --with ./mirror/orders"
    assert main(shlex.split(command)) == 0
    assert capsys.readouterr().out.endswith(": 31 items, 0 differ\n")
    table = DeltaTable("mirror/orders")
    table.update(updates={"total": "250"}, predicate="PK = 'ada'")
    table.update(updates={"city": "'Köln'"}, predicate="PK = 'eve'")
    rows = table.to_pyarrow_table()
    # The one with the total of the item that was removed.
    keys = list(zip(rows["PK"].to_pylist(), rows["SK"].to_pylist(), strict=True))
    bob = rows.slice(keys.index(("user", "order-7")), 1)
    for at, text in enumerate(("bob", "order-2")):
        bob = bob.set_column(at, rows.schema.field(at), [[text]])
    write_deltalake(table, bob, mode="append")
    capsys.readouterr()

    assert main(shlex.split(command)) == 1
    printed = capsys.readouterr().out
    (shown,) = CONSOLE
    first, *rest = shown.splitlines()
    assert first == f"$ python -m watcher {command}"
    assert pattern("\n".join(rest)) == pattern(printed.rstrip("\n"))

    assert main([*shlex.split(command), "-o", "json"]) == 1
    compared = capsys.readouterr().out
    found = json.loads(compared)
    assert (found["items"], found["differ"]) == (32, 3)
    assert {each["cause"] for each in found["differences"]} == {"missing", "unexplained"}
    assert main([*shlex.split(command), "--ignore", "city"]) == 1
    assert "32 items, 2 differ" in capsys.readouterr().out


def pattern(text: str) -> str:
    """Without what is another each time: times, versions and sequence numbers."""
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:]+[+-]\d\d:\d\d", "TIME", text)
    text = re.sub(r"change \S+ ", "change ID ", text)
    return re.sub(r"version \d+: \d+", "version V: N", text)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_finds_an_equal_copy_equal_and_a_wrong_value_wrong(
    command: str, shop: Simulator, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for wrong in (False, True):
        make_copies(shop, capsys, wrong=wrong)
        assert main(shlex.split(command)) == int(wrong), capsys.readouterr()
        out = capsys.readouterr().out
        assert f" items, {int(wrong)} differ\n" in out
        if wrong:
            assert "PK=user, SK=order-3   total: 3.5 there, 3 here   no change explains it" in out


def make_copies(shop: Simulator, capsys: pytest.CaptureFixture[str], *, wrong: bool) -> None:
    """Copies of all kinds that the page shows, in the working folder."""
    client = shop.client("dynamodb")
    items = client.scan(TableName="orders")["Items"]
    for item in items:
        if wrong and item["SK"]["S"] == "order-3":
            item["total"] = {"N": "3.5"}
    rows = [{name: next(iter(value.values())) for name, value in item.items()} for item in items]
    with open("export.jsonl", "w") as file:
        for row in rows:
            numbers = {name: float(row[name]) for name in ("total", "n") if name in row}
            typed = {**row, **numbers}
            file.write(json.dumps(typed) + "\n")
    duckdb.execute("COPY (FROM 'export.jsonl') TO 'export.parquet'")
    capsys.readouterr()
