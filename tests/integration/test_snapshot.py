"""The items that exist, and the changes made meanwhile: a ledger beside writers that go on."""

import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.dynamodb_local import DynamoDBLocal
from watcher import Record, watch
from watcher.aws.tables import TablesClient

ITEMS = 120


class Ledger:
    """What a handler knows of the table: each item's last number, -1 for one that is removed."""

    def __init__(self) -> None:
        self.items: dict[str, int] = {}
        self.last_change: dict[str, int] = {}
        self.kinds: list[str] = []
        self.wrong: list[str] = []

    def take(self, record: Record) -> None:
        key, new = record.key["PK"], record.new
        number = int(new["n"]) if new else int((record.old or {})["n"])
        self.note(record.event_name, key, number)

    def note(self, kind: str, key: str, number: int) -> None:
        self.kinds.append(kind)
        if kind != "SNAPSHOT":
            self.last_change[key] = number
        elif number < self.last_change.get(key, -1):
            self.wrong.append(f"SNAPSHOT of {key} at {number} after {self.last_change[key]}")
        self.items[key] = -1 if kind == "REMOVE" else number


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page holds few items, and takes its time: there is much to go wrong in between."""
    page = TablesClient.page

    def small(self: TablesClient, *place: Any, **query: Any) -> Any:
        found = page(self, *place, Limit=7, **query)
        time.sleep(0.02)
        return found

    monkeypatch.setattr(TablesClient, "page", small)


@contextmanager
def written_to(server: DynamoDBLocal, table: str) -> Iterator[Callable[[], None]]:
    """Items that are put and deleted all the time, each with a higher number; call to end it."""
    client, over, rng = server.client(), threading.Event(), random.Random(table)
    server.create_table(table, sort_key=False)

    def put(which: int, number: int) -> None:
        item = {"PK": {"S": f"k{which}"}, "n": {"N": str(number)}}
        client.put_item(TableName=table, Item=item)

    for which in range(ITEMS):
        put(which, 0)

    def write(part: int) -> None:
        number = 0
        while not over.wait(0.03):
            number += 1
            which = rng.randrange(ITEMS // 2) * 2 + part
            if rng.random() < 0.3:
                key = {"PK": {"S": f"k{which}"}}
                client.delete_item(TableName=table, Key=key)
            else:
                put(which, number)

    threads = [threading.Thread(target=write, args=(part,)) for part in range(2)]
    for thread in threads:
        thread.start()

    def end() -> None:
        over.set()
        for thread in threads:
            thread.join()

    try:
        yield end
    finally:
        end()


def in_table(server: DynamoDBLocal, table: str) -> dict[str, int]:
    pages = server.client().get_paginator("scan").paginate(TableName=table, ConsistentRead=True)
    return {row["PK"]["S"]: int(row["n"]["N"]) for page in pages for row in page["Items"]}


def there(ledger: Ledger) -> dict[str, int]:
    return {key: number for key, number in ledger.items.items() if number >= 0}


@pytest.fixture
def server(dynamodb_local: DynamoDBLocal, monkeypatch: pytest.MonkeyPatch) -> DynamoDBLocal:
    for name, value in dynamodb_local.environment.items():
        monkeypatch.setenv(name, value)
    return dynamodb_local


@pytest.mark.parametrize("concurrency", [1, 3])
def test_a_watch_that_is_stopped_in_between_knows_the_table_in_the_end(
    concurrency: int, server: DynamoDBLocal, tmp_path: Path
) -> None:
    ledger, file, table = Ledger(), tmp_path / "c.json", f"snap-watch-{concurrency}"
    options: dict[str, Any] = {"snapshot": True, "checkpoint": file, "poll_max": 0.2}
    options["concurrency"] = concurrency
    with written_to(server, table) as end:
        watch(table, [ledger.take], max_records=60, **options)
        stored = json.loads(file.read_text())["snapshot"]
        first = ledger.kinds.count("SNAPSHOT")
        assert stored["items"] == first < ITEMS
        assert "done" not in stored
        stop, rows = threading.Event(), dict[str, int]()

        def take(record: Record) -> None:
            ledger.take(record)
            if not rows and json.loads(file.read_text())["snapshot"].get("done"):
                end()
                rows.update(in_table(server, table))
            if rows and there(ledger) == rows:
                stop.set()

        guard = threading.Timer(400, stop.set)
        guard.start()
        watch(table, [take], stop=stop, **options)
        guard.cancel()
        assert ledger.wrong == []
        assert there(ledger) == in_table(server, table)
        # Those that were there all the time, each once, and not those that had been removed.
        shown = ledger.kinds.count("SNAPSHOT")
        assert json.loads(file.read_text())["snapshot"] == {"items": shown, "done": True}
        item = {"PK": {"S": "k1"}, "n": {"N": "1000000"}}
        server.client().put_item(TableName=table, Item=item)
        watch(table, [ledger.take], max_records=1, **options)
        assert there(ledger)["k1"] == 1_000_000, "the items not again"
