"""Dead letters in a file, a queue, a bucket or a function."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from concurrent import futures
from typing import Any

import pytest

from tests.support.wire import FIRST, record, wire
from watcher.delivery.dispatcher import Dispatcher
from watcher.delivery.failures import FailurePolicy
from watcher.delivery.handler import Failure, Handler
from watcher.errors import HandlerError, UsageError
from watcher.records.record import Record


def fail(record: Record) -> None:
    raise ValueError("no")


def dead(policy: Any, numbers: Sequence[int] = (1, 2), handlers: int = 1) -> Dispatcher:
    """Has handlers fail on records of these numbers."""
    names = [f"o{number}" for number in range(handlers)]
    made = Dispatcher([Handler(name, fail) for name in names], FailurePolicy.parse(policy))
    for number in numbers:
        made.deliver(record(number))
    made.close()
    return made


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    from moto import mock_aws

    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with mock_aws():
        import boto3

        yield boto3.client


def bodies(queues: Any, url: str) -> list[Any]:
    answer = queues.receive_message(QueueUrl=url, MaxNumberOfMessages=10, VisibilityTimeout=0)
    return [json.loads(each["Body"]) for each in answer.get("Messages", [])]


def test_a_function_gets_each_letter_whole_and_what_it_raises_stops_before_the_record() -> None:
    letters: list[dict[str, Any]] = []
    made = dead(letters.append)
    assert [letter["record"] for letter in letters] == [wire(1), wire(2)]
    assert made.given_up.dead_letter_count == 2 and made.unhandled == 0
    with pytest.raises(HandlerError, match=r"fail can't be written: ValueError: no; stopped"):
        dead(fail)


def test_a_dead_letter_that_takes_long_delays_neither_the_loop_nor_other_retries() -> None:
    writes, written = threading.Event(), threading.Event()

    def take(letter: dict[str, Any]) -> None:
        if letter["record"] == wire(3):
            writes.set()
            assert written.wait(60)

    handlers = [Handler("fails", fail)]
    made = Dispatcher(handlers, FailurePolicy.parse(take), in_threads=True)
    made.deliver(record(1))
    made.deliver(record(2))  # a repeat, whose count the loop logs
    with futures.ThreadPoolExecutor() as pool:
        slow = pool.submit(made.deliver, record(3))
        assert writes.wait(60)
        failure = Failure([record(4)], ValueError("no"))
        steps: list[futures.Future[Any]] = [
            pool.submit(made.tick),
            pool.submit(made.retries.next_in, "fails", failure),
        ]
        left = futures.wait(steps, 30).not_done
        written.set()
        slow.result()
    made.close()
    assert not left and made.failures == made.given_up.dead_letter_count == 3


@pytest.mark.parametrize("by", ["name", "url", "arn"])
def test_a_queue_gets_a_letter_for_each_handler(aws: Any, by: str) -> None:
    queues = aws("sqs")
    url = queues.create_queue(QueueName="dead")["QueueUrl"]
    place = {"name": "dead", "url": url, "arn": "arn:aws:sqs:us-east-1:123456789012:dead"}[by]
    dead(f"dead-letter:sqs://{place}", (1, 2), handlers=2)
    found = [(each["record"], each["handler"]) for each in bodies(queues, url)]
    assert found == [(wire(number), name) for number in (1, 2) for name in ("o0", "o1")]


def test_a_fifo_queue_has_a_shards_letters_in_their_order_each_once(aws: Any) -> None:
    queues = aws("sqs")
    url = queues.create_queue(QueueName="dead.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    dead("dead-letter:sqs://dead.fifo", (1, 2, 2))
    assert [each["record"] for each in bodies(queues, url)] == [wire(1), wire(2)]


@pytest.mark.proof
def test_a_bucket_has_an_object_for_each_letter_in_the_order_of_the_records(
    aws: Any,
) -> None:
    bucket = aws("s3")
    bucket.create_bucket(Bucket="letters")
    for _ in range(2):  # as after a crash
        dead("dead-letter:s3://letters/of/orders", (10, 9))
    found = bucket.list_objects_v2(Bucket="letters")["Contents"]
    assert [each["Key"] for each in found] == [
        f"of/orders/stream/shard-0/{FIRST + number:040d}-o0.json" for number in (9, 10)
    ]


def test_a_letter_that_a_place_does_not_take_stops_before_its_record(aws: Any) -> None:
    aws("sqs").create_queue(QueueName="dead")
    made = Dispatcher([Handler("o", fail)], FailurePolicy.parse("dead-letter:sqs://dead"))
    large = json.dumps(wire(1, size=1_100_000)).encode()
    with pytest.raises(HandlerError, match=r"SQS takes 1,048,576: use s3://; stopped before it"):
        made.deliver(Record.from_json(large, "shard-0"))
    assert made.given_up.dead_letter_count == 0


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("sqs://none", "sqs://none: .*does not exist"),
        ("kafka://dead", "use a file, sqs:// or s3://"),
    ],
)
def test_a_place_that_cannot_be_is_refused_at_the_start(aws: Any, place: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        dead(f"dead-letter:{place}")
