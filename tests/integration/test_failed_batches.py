"""Batches that Lambda gave up on, by the recipe of docs/handlers.md."""

from __future__ import annotations

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
    """What Lambda sends of a batch: https://docs.aws.amazon.com/lambda/latest/dg/with-ddb.html."""
    shards = {each.sequence_number: each.shard_id for each in simulator.records}
    return {
        "requestContext": {
            "requestId": "316aa6d0-8154-xmpl-9af7-85d5f4a6bc81",
            "functionArn": "arn:aws:lambda:us-east-1:123456789012:function:orders",
            "condition": "RetryAttemptsExhausted",
            "approximateInvokeCount": 1,
        },
        "responseContext": {
            "statusCode": 200,
            "executedVersion": "$LATEST",
            "functionError": "Unhandled",
        },
        "version": "1.0",
        "timestamp": "2026-11-21T08:13:13.239Z",
        "DDBStreamBatchInfo": {
            "shardId": shards[numbers[0]],
            "startSequenceNumber": numbers[0],
            "endSequenceNumber": numbers[-1],
            "approximateArrivalOfFirstRecord": "2026-11-21T08:13:10Z",
            "approximateArrivalOfLastRecord": "2026-11-21T08:13:11Z",
            "batchSize": len(numbers),
            "streamArn": simulator.stream_arn,
        },
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


def test_ranges_come_in_their_order_over_splits_and_their_messages_go(
    orders: Simulator, queue: Any, hand_over: Callable[..., None]
) -> None:
    ranges = [changes(orders, 3)]
    for change in (orders.rotate, orders.split, orders.rotate):
        for shard_id in orders.open_shards:
            change(shard_id)
        ranges.append(changes(orders, 3))
    send(queue, *(message(orders, ranges[place]) for place in (2, 0, 3, 1)))
    handled: list[str] = []
    hand_over("failed", lambda record: handled.append(record.sequence_number))
    assert handled == [number for each in ranges for number in each]
    assert left(queue) == 0


def test_an_expired_range_and_one_whose_handling_failed_keep_their_messages(
    orders: Simulator,
    queue: Any,
    hand_over: Callable[..., None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    old, partly = changes(orders, 3), changes(orders, 4)
    orders.trim(5)
    young, poison = changes(orders, 2), changes(orders, 3)
    send(queue, *(message(orders, each) for each in (poison, young, old, partly)))
    handled: list[str] = []

    def handle(record: Record) -> None:
        if record.sequence_number == poison[1]:
            raise ValueError("poison")
        handled.append(record.sequence_number)

    with pytest.raises(ValueError, match="poison"):
        hand_over("failed", handle)
    assert handled == [*young, poison[0]]
    kept = capsys.readouterr().out.splitlines()
    assert len(kept) == 2 and all(line.startswith("kept: DATA LOSS: shard ") for line in kept)
    assert left(queue) == 3
