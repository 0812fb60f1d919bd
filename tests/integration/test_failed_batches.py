"""Batches that Lambda gave up on, by the recipe of docs/handlers.md."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import boto3
import pytest

from tests.simulator import Simulator
from tests.support import pages
from tests.support.moto_server import moto_server
from watcher import Record

RECIPE = pages.files(pages.PAGES["handlers.md"])["failed_batches.py"]


@pytest.fixture
def hand_over(orders: Simulator) -> Callable[[str, Callable[[Record], object]], None]:
    """The recipe's function."""
    assert RECIPE.count("\n") <= 30
    names: dict[str, Any] = {}
    exec(RECIPE, names)
    found: Callable[[str, Callable[[Record], object]], None] = names["hand_over"]
    return found


def message(simulator: Simulator, numbers: list[str]) -> dict[str, Any]:
    """The part that is looked at: https://docs.aws.amazon.com/lambda/latest/dg/with-ddb.html."""
    shards = {each.sequence_number: each.shard_id for each in simulator.records}
    return {
        "DDBStreamBatchInfo": {
            "shardId": shards[numbers[0]],
            "startSequenceNumber": numbers[0],
            "endSequenceNumber": numbers[-1],
            "batchSize": len(numbers),
            "streamArn": simulator.stream_arn,
        }
    }


@pytest.fixture(scope="module")
def sqs() -> Iterator[str]:
    with moto_server() as url:
        # Its queues are this process's: another module may have left one of the same name.
        urlopen(f"{url}/moto-api/reset", data=b"").close()
        yield url


@pytest.fixture
def orders(sqs: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Simulator]:
    """A table, and a way to it and to SQS for every process."""
    monkeypatch.chdir(tmp_path)
    with Simulator(table="orders", key_names=("PK",)) as simulator:
        for name, value in {**simulator.environment, "AWS_ENDPOINT_URL_SQS": sqs}.items():
            monkeypatch.setenv(name, value)
        yield simulator


@pytest.fixture
def queue(orders: Simulator) -> Iterator[Any]:
    resource = boto3.resource("sqs")
    made = resource.create_queue(QueueName="failed")
    yield made
    made.delete()


def changes(orders: Simulator, count: int, key: str = "user-1") -> list[str]:
    return [orders.put({"PK": {"S": key}, "total": {"N": str(n)}}) for n in range(count)]


def send(queue: Any, *messages: Any) -> None:
    for each in messages:
        queue.send_message(MessageBody=json.dumps(each))


def left(queue: Any) -> int:
    queue.load()
    names = ("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible")
    return sum(int(queue.attributes[name]) for name in names)


def test_ranges_come_in_their_order_and_what_was_not_handled_keeps_its_message(
    orders: Simulator,
    queue: Any,
    hand_over: Callable[..., None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Over splits; some have expired, and of one the handling fails."""
    old, partly = changes(orders, 3), changes(orders, 4)
    orders.trim(5)
    ranges = []
    for change in (orders.rotate, orders.split, orders.rotate):
        for shard_id in orders.open_shards:
            change(shard_id)
        ranges.append(changes(orders, 3))
    poison = changes(orders, 3)
    sent = (poison, ranges[2], ranges[0], old, ranges[1], partly)
    send(queue, *(message(orders, each) for each in sent))
    handled: list[str] = []

    def handle(record: Record) -> None:
        if record.sequence_number == poison[1]:
            raise ValueError("poison")
        handled.append(record.sequence_number)

    with pytest.raises(ValueError, match="poison"):
        hand_over("failed", handle)
    assert handled == [*(number for each in ranges for number in each), poison[0]]
    kept = capsys.readouterr().out.splitlines()
    assert len(kept) == 2 and all(line.startswith("kept: DATA LOSS: shard ") for line in kept)
    assert left(queue) == 3
