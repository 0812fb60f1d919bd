"""--webhook, --sqlite, --sqs and --kafka: each change once, and a failure like any handler's."""

from __future__ import annotations

import json
import logging
import sqlite3
from base64 import b64decode
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import boto3
import pytest

from tests.support.http_server import Answered, Asked, PlayedServer
from tests.support.wire import FIRST, record, wire
from watcher import Record
from watcher.delivery import handler_modules
from watcher.delivery.dispatcher import Dispatcher
from watcher.delivery.failures import FailurePolicy
from watcher.delivery.handler import Handler
from watcher.errors import HandlerError, UsageError

ARN = "arn:aws:dynamodb:{}:1:table/{}/stream/1"


def load(name: str, value: str, **more: str) -> Handler:
    return handler_modules.load(handler_modules.find()[name], {name: value, **more})


def deliver(observer: Handler, records: Iterable[Record | int], on_error: str = "log") -> int:
    """Returns how many it failed on."""
    made = Dispatcher([observer], FailurePolicy.parse(on_error))
    for each in records:
        made.deliver(record(each) if isinstance(each, int) else each)
    made.flush()
    made.close()
    return made.failures


def item(number: int, key: str, value: str, table: str = "orders") -> Record:
    """An item as a snapshot hands it over: the number is a count that each of them begins anew."""
    image = {"pk": {"S": key}, "v": {"S": value}}
    change = {"SequenceNumber": str(number), "Keys": {"pk": {"S": key}}, "NewImage": image}
    line = json.dumps({"eventName": "SNAPSHOT", "dynamodb": change}).encode()
    return Record.from_json(line, "snapshot", ARN.format("us-east-1", table))


HANGS_UP = 0


class Receiver(PlayedServer):
    """Answers with the statuses that it is told to, then with 204."""

    def __init__(self) -> None:
        super().__init__(self._next)
        self.answers: list[int] = []

    def _next(self, asked: Asked) -> Answered:
        status = self.answers.pop(0) if self.answers else 204
        return Answered(status, f"Cannot POST {asked.path}".encode() if status >= 400 else b"")

    @property
    def url(self) -> str:
        return f"{super().url}/changes?x=1"

    @property
    def keys(self) -> list[str]:
        return [each.headers["idempotency-key"] for each in self.asked]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        yield server


def test_a_webhook_gets_each_change_and_can_tell_what_comes_again(receiver: Receiver) -> None:
    receiver.answers = [200, 503, 429, 200]
    url = receiver.url.replace("//", "//us%C3%A9r:p%40ss%3A%2F@")
    assert deliver(load("webhook", url), [1, 2], "retry:3") == 0
    assert receiver.keys == [f"shard-0:{FIRST + n}" for n in (1, 2, 2, 2)]
    headers, body = receiver.asked[0].headers, json.loads(receiver.asked[0].body)
    assert headers["content-type"] == "application/json"
    meant = b64decode(headers["authorization"].removeprefix("Basic ")).decode()
    assert meant == "usér:p@ss:/", "as curl sends it"
    assert body["eventName"] == "MODIFY" and body["sequenceNumber"] == str(FIRST + 1)


def test_a_webhook_is_told_of_no_two_items_that_they_are_the_same(receiver: Receiver) -> None:
    receiver.answers = [503]
    items = item(1, "a", "x"), item(1, "a", "x", "users"), item(1, "b", "x")
    deliver(load("webhook", receiver.url), items, "retry:3")
    keys = receiver.keys
    assert len(keys) == 4 and len(set(keys)) == 3 and keys[0] == keys[1]


@pytest.mark.parametrize("port", [None, 1, 99_999])
def test_the_password_path_and_query_of_a_webhook_are_shown_nowhere(
    port: int | None, receiver: Receiver, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a chat service's webhook all of it is the password; a server may quote it."""
    receiver.answers = [500, 302]
    dead = tmp_path / "dead.jsonl"
    place = f"user:pa55@127.0.0.1:{port or receiver.server_port}"
    url = f"http://{place}/services/T0A/w%6frd-1?key=w%6frd-2"
    caplog.set_level(logging.DEBUG, "watcher")
    try:
        assert deliver(load("webhook", url), [1, 2], f"dead-letter:{dead}") == 2
        told = caplog.text + dead.read_text()
    except UsageError as error:
        told = str(error)
    assert "127.0.0.1" in told or "refused" in told
    assert not any(each in told for each in ("pa55", "services", "T0A", "w%6frd", "word-"))


def test_a_connection_that_a_webhook_has_closed_meanwhile_loses_no_change(
    receiver: Receiver,
) -> None:
    receiver.answers = [200, HANGS_UP, 200, HANGS_UP, HANGS_UP]
    assert deliver(load("webhook", receiver.url), [1, 2, 3]) == 1
    assert receiver.keys == [f"shard-0:{FIRST + n}" for n in (1, 2, 2, 3, 3)]


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        *(("webhook", url, "give a URL") for url in ("", "example.com", "ftp://a.com", "http://")),
        ("sqlite", "", "--sqlite: give a file"),
        ("sqlite", ":memory:", "--sqlite: give a file"),
        ("sqlite", "text", "not a database"),
        ("sqs", "nosuch", "--sqs nosuch: .*does not exist"),
        *(("kafka", value, "give BROKERS/TOPIC") for value in ("c", "/c", "localhost:9092/")),
    ],
)
def test_what_can_never_be_is_refused(
    name: str, value: str, told: str, queues: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text").write_text("no database" * 100)
    with pytest.raises(UsageError, match=told):
        load(name, value)


def rows(file: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(file)) as database:
        return database.execute(query).fetchall()


def test_sqlite_has_each_change_once_and_no_more_than_is_flushed(tmp_path: Path) -> None:
    file = tmp_path / "orders.db"
    made = Dispatcher([load("sqlite", str(file))], FailurePolicy())
    made.deliver(record(1))
    # It holds items' data: its owner's alone, and so what SQLite keeps beside it.
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}
    assert rows(file, "SELECT * FROM changes") == []
    made.flush()
    assert len(rows(file, "SELECT * FROM changes")) == 1
    made.close()
    deliver(load("sqlite", str(file)), [1, 2])
    found = rows(file, "SELECT sequence_number, event_name FROM changes ORDER BY 1")
    assert found == [(str(FIRST + n), "MODIFY") for n in (1, 2)]
    assert len(rows(file, "SELECT * FROM items")) == 1


def test_sqlite_has_the_items_of_a_second_snapshot_too(tmp_path: Path) -> None:
    file = tmp_path / "orders.db"
    for items in [item(1, "a", "old"), item(2, "b", "old")], [item(1, "b", "new")]:
        deliver(load("sqlite", str(file)), items)
    found = rows(file, "SELECT key, json_extract(item, '$.v') FROM items ORDER BY 1")
    assert found == [('{"pk":"a"}', "old"), ('{"pk":"b"}', "new")]


def test_sqlite_mixes_no_two_tables_of_one_name(tmp_path: Path) -> None:
    file = tmp_path / "orders.db"
    changes = [
        Record.from_json(json.dumps(wire(1)).encode(), region, ARN.format(region, "orders"))
        for region in ("us-east-1", "eu-west-1")
    ]
    assert deliver(load("sqlite", str(file)), changes) == 1
    assert rows(file, "SELECT shard_id FROM changes") == [("us-east-1",)]


def test_a_full_disk_ends_the_watch_before_what_sqlite_could_not_keep(tmp_path: Path) -> None:
    observer = load("sqlite", str(tmp_path / "orders.db"))
    made = Dispatcher([observer], FailurePolicy())
    made.deliver(record(1))
    made.flush()
    database = observer.handle.__globals__["database"]
    (pages,) = database.execute("PRAGMA page_count").fetchone()
    database.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(HandlerError, match="database or disk is full"):
        for number in range(2, 400):
            made.deliver(record(number))
    database.execute("PRAGMA max_page_count = 100000")
    made.close()


@pytest.fixture
def queues(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    from moto import mock_aws

    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with mock_aws():
        yield boto3.client("sqs")


def test_sqs_gets_a_message_each_and_a_fifo_queue_its_order(queues: Any) -> None:
    queues.create_queue(QueueName="plain")
    fifo = queues.create_queue(QueueName="changes.fifo", Attributes={"FifoQueue": "true"})
    deliver(load("sqs", "plain"), [1])
    deliver(load("sqs", fifo["QueueUrl"]), [1, 2, 2])
    found = queues.receive_message(
        QueueUrl=fifo["QueueUrl"], MaxNumberOfMessages=10, AttributeNames=["All"]
    )["Messages"]
    numbers = [json.loads(each["Body"])["sequenceNumber"] for each in found]
    assert numbers == [str(FIRST + n) for n in (1, 2)]
    assert len({each["Attributes"]["MessageGroupId"] for each in found}) == 1


def test_a_fifo_queue_gets_the_items_of_two_tables(queues: Any) -> None:
    fifo = queues.create_queue(QueueName="items.fifo", Attributes={"FifoQueue": "true"})
    deliver(load("sqs", fifo["QueueUrl"]), [item(1, "a", "x"), item(1, "a", "x", "users")])
    found = queues.receive_message(QueueUrl=fifo["QueueUrl"], MaxNumberOfMessages=10)["Messages"]
    assert {json.loads(each["Body"])["table"] for each in found} == {"orders", "users"}


def test_kafka_gets_a_message_each_by_the_items_key(tmp_path: Path) -> None:
    kafka = pytest.importorskip("confluent_kafka")
    cluster = kafka.Producer({"test.mock.num.brokers": 1, "log_level": 0})
    (broker,) = cluster.list_topics(timeout=60).brokers.values()
    config = tmp_path / "kafka.conf"
    config.write_text("# of the company\nacks = all\n")
    address = f"{broker.host}:{broker.port}"
    made = load("kafka", f"{address}/changes", kafka_config=str(config))
    assert deliver(made, [1, 2]) == 0
    settings = {"bootstrap.servers": address, "group.id": "g", "auto.offset.reset": "earliest"}
    consumer = kafka.Consumer(settings)
    consumer.subscribe(["changes"])
    got: list[tuple[bytes, str]] = []
    while len(got) < 2:
        (message,) = consumer.consume(1, timeout=60)
        got.append((message.key(), json.loads(message.value())["sequenceNumber"]))
    consumer.close()
    assert got == [(b'{"pk":"a"}', str(FIRST + n)) for n in (1, 2)]
