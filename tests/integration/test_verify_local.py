"""Two tables of Amazon's own DynamoDB Local, both written meanwhile: no difference is made up."""

import itertools
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.ledger.ledger import an_item
from tests.support.dynamodb_local import DynamoDBLocal
from watcher.aws.tables import TablesClient
from watcher.cli import main
from watcher.records.record import wire_item

pytestmark = pytest.mark.proof

PAUSE = 0.005
"""Between two writes: the changes are many, and leave the comparison a core."""


@contextmanager
def beside(work: Callable[[], object]) -> Iterator[None]:
    """Goes on with this work until the block ends."""
    done = threading.Event()

    def repeat() -> None:
        while not done.wait(PAUSE):
            work()

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


class Orders:
    """A table, and a consumer that copies each change a little later."""

    def __init__(self, server: DynamoDBLocal) -> None:
        self.chance = random.Random(5)
        self.client = server.client()
        self.late: list[tuple[str, dict[str, Any] | None]] = []
        for name in ("orders", "orders-copy"):
            server.create_table(name)

    def write(self) -> None:
        name = f"item-{self.chance.randint(0, 60)}"
        item = None
        if self.chance.random() < 0.8:
            item = {**key(name), **an_item(self.chance)}
        self.apply("orders", name, item)
        self.late.append((name, item))
        if len(self.late) > 10 or self.chance.random() < 0.3:
            self.copy()

    def copy(self) -> None:
        if self.late:
            self.apply("orders-copy", *self.late.pop(0))

    def apply(self, table: str, name: str, item: dict[str, Any] | None) -> None:
        if item is None:
            self.client.delete_item(TableName=table, Key=key(name))
        else:
            self.client.put_item(TableName=table, Item=wire_item(msgspec.json.encode(item)))


def key(name: str) -> dict[str, dict[str, str]]:
    return {"PK": {"S": name}, "SK": {"S": "é"}}


def test_a_copy_that_is_a_little_behind_is_equal_while_both_are_written(
    fresh_dynamodb_local: DynamoDBLocal,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in fresh_dynamodb_local.environment.items():
        monkeypatch.setenv(name, value)
    orders = Orders(fresh_dynamodb_local)
    for table in ("orders", "orders-copy"):
        orders.apply(table, "still", {**key("still"), "city": {"S": "Köln"}})
    for _ in range(200):
        orders.write()
    command = ["verify", "orders", "--with", "orders-copy"]
    scan, rotations = TablesClient.scan, itertools.count()

    def rotate_and_scan(client: TablesClient, *place: Any, **how: Any) -> Any:
        """The first page has been read when the shards rotate."""
        for page in scan(client, *place, **how):
            if next(rotations) == 0:
                fresh_dynamodb_local.rollover()
            yield page

    monkeypatch.setattr(TablesClient, "scan", rotate_and_scan)
    with beside(orders.write):
        assert main(command) == 0, capsys.readouterr()
    assert next(rotations) > 1, "the shards rotated during the comparison"
    assert capsys.readouterr().out.endswith(" items, 0 differ\n")

    orders.apply("orders-copy", "by-hand", {**key("by-hand"), "city": {"S": "Köln"}})
    orders.apply("orders-copy", "still", {**key("still"), "city": {"S": "Koeln"}})
    with beside(orders.write):
        assert main(command) == 1
    *_, by_hand, still = capsys.readouterr().out.splitlines()
    assert by_hand.startswith("  PK=by-hand, SK=é   only there   no change explains it")
    assert still.startswith("  PK=still, SK=é   city: 'Koeln' there, 'Köln' here   no change")
