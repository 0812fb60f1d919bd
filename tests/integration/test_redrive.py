"""`redrive` as it is used: docs/handlers.md's section, and processes that are ended or killed."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import boto3
import pytest

from tests.simulator import Simulator
from tests.support import prefork
from tests.support.dynamodb_local import DynamoDBLocal
from tests.support.moto_server import moto_server
from tests.support.program import Program
from tests.unit.cli.test_redrive import message
from watcher.cli import main

PAGE = (Path(__file__).parents[2] / "docs" / "handlers.md").read_text()
_, SECTION = PAGE.split("## Redrive batches that Lambda dropped")
((_, COMMANDS), (_, DRY_RUN)) = re.findall(r"^```(sh|text)\n(.*?)^```", SECTION, re.M | re.S)
HANDLER = """
import pathlib, time

def handle(record):
    print(record.sequence_number, flush=True)
    while record.sequence_number == STOP_AT and not pathlib.Path("go on").exists():
        time.sleep(0.01)
"""


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


def show_again() -> None:
    """As when the time has passed for which a killed run has hidden its messages."""
    from moto.backends import get_backend

    for region in get_backend("sqs")["123456789012"].values():
        for queue in region.queues.values():
            for each in list(queue.pending_messages):
                each.visible_at = 0


def left(queue: Any) -> int:
    queue.load()
    names = ("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible")
    return sum(int(queue.attributes[name]) for name in names)


def test_the_page_s_commands_work(
    orders: Simulator, queue: Any, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.syspath_prepend(".")
    Path("app.py").write_text("def handler(event, context):\n    print(len(event['Records']))\n")
    lake = Path("lake", "date=2026-11-21")
    lake.mkdir(parents=True)
    Path("lake.checkpoint").mkdir()
    parts = [changes(orders, count) for count in (2, 4, 1)]
    about = {
        "approximateArrivalOfFirstRecord": "2026-11-21T10:24:05Z",
        "approximateArrivalOfLastRecord": "2026-11-21T10:24:09Z",
    }
    messages = [message(orders, each, **about) for each in parts]
    Path("messages.json").write_text(json.dumps(messages))
    printed = {}
    for line in COMMANDS.splitlines():
        send(queue, *() if left(queue) else messages)
        assert main([*shlex.split(line)[3:], "--utc"]) == 0, line
        printed[line] = "".join(capsys.readouterr())
    dry_run, *others = printed.values()
    assert dry_run == DRY_RUN
    assert others[0].splitlines()[:-1] == ["2", "4", "1"]
    assert [len(text.splitlines()) - 1 for text in others[1:]] == [7, 7]
    assert all("Done: 7 redriven, 0 failed, 0 unreadable; 3 of 3 ranges" in each for each in others)


def test_the_objects_of_a_destination_on_s3_are_replayed(orders: Simulator) -> None:
    """They hold the event, as a text in the message."""
    numbers = changes(orders, 3)
    iterator = orders.client().get_shard_iterator(
        StreamArn=orders.stream_arn,
        ShardId=orders.open_shards[0],
        ShardIteratorType="TRIM_HORIZON",
    )
    records = orders.client().get_records(ShardIterator=iterator["ShardIterator"])["Records"]
    for each in records:
        created = each["dynamodb"]["ApproximateCreationDateTime"]
        each["dynamodb"]["ApproximateCreationDateTime"] = created.timestamp()
        each["eventSourceARN"] = orders.stream_arn
    event = json.dumps({"Records": records})
    Path("OBJECT").write_text(json.dumps({**message(orders, numbers), "payload": event}))
    (line,) = re.findall(r"`(jq .*?)`", SECTION)
    Path("bin").mkdir()
    prefork.write_command(Path("bin", "python"))
    if shutil.which("jq") is None:  # a stand-in for this one filter
        Path("bin", "jq").write_text(
            f"#!{sys.executable}\nimport json, sys\n"
            "for each in json.loads(json.load(open(sys.argv[3]))['payload'])['Records']:\n"
            "    print(json.dumps(each))\n"
        )
        Path("bin", "jq").chmod(0o755)
    line = f"PATH=bin:$PATH; {line.replace('--my-handler', '--print-json')}"
    done = subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, timeout=100, check=True
    )
    given = [json.loads(each)["dynamodb"]["SequenceNumber"] for each in done.stdout.splitlines()]
    assert given == numbers


def run(stop_at: str) -> Program:
    Path("mine.py").write_text(HANDLER.replace("STOP_AT", repr(stop_at)))
    return Program("redrive", "failed", "--handlers", ".", "--mine", env={})


@pytest.mark.parametrize("place", range(7))
def test_a_run_that_is_killed_between_delivery_and_deletion_loses_nothing(
    orders: Simulator, queue: Any, place: int
) -> None:
    numbers = changes(orders, 7)
    parts = [numbers[:2], numbers[2:6], numbers[6:]]
    send(queue, *(message(orders, each) for each in parts))
    with run(numbers[place]) as program:
        program.wait_for(lambda: numbers[place] in program.out)
        program.end(signal.SIGKILL)
    done = [each for each in parts if numbers[place] not in each and each[-1] in program.out]
    assert program.out == numbers[: place + 1]
    assert left(queue) == 3 - len(done)
    show_again()
    with run("none") as again:
        assert again.wait() == 0
    assert again.out == [number for each in parts if each not in done for number in each]
    assert left(queue) == 0


def test_a_signal_lets_the_record_in_hand_end_and_shows_the_other_messages_again(
    orders: Simulator, queue: Any
) -> None:
    numbers = changes(orders, 6)
    parts = [numbers[:2], numbers[2:4], numbers[4:]]
    send(queue, *(message(orders, each) for each in parts))
    with run(numbers[2]) as program:
        program.wait_for(lambda: numbers[2] in program.out)
        program.tell(signal.SIGTERM)
        Path("go on").touch()
        assert program.wait() == 128 + signal.SIGTERM
    assert program.out == numbers[:3]
    assert program.err[-1] == (
        "Ended early: 3 redriven, 0 failed, 0 unreadable; 1 of 3 ranges handled and deleted"
    )
    with run("none") as again:
        assert again.wait() == 0
    assert again.out == numbers[2:]
    assert left(queue) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_dry_run_that_is_ended_shows_its_messages_again(
    orders: Simulator, queue: Any, number: signal.Signals
) -> None:
    send(queue, message(orders, changes(orders, 2)))
    orders.set_faults(error_rate=1.0)
    with Program("redrive", "failed", "--dry-run", env={}) as program:
        orders.wait_for_calls("GetShardIterator", 1)
        program.tell(number)
        assert program.wait() == 128 + number
    queue.load()
    assert queue.attributes["ApproximateNumberOfMessages"] == "1"
    assert not any("Traceback" in line for line in program.err)


def test_dynamodb_s_own_shards_rotate_and_are_trimmed(
    fresh_dynamodb_local: DynamoDBLocal,
    sqs: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    server = fresh_dynamodb_local
    server.create_table("orders")
    for name, value in {**server.environment, "AWS_ENDPOINT_URL_SQS": sqs}.items():
        monkeypatch.setenv(name, value)
    messages: list[dict[str, Any]] = []
    for hours in (25, 2, 1):
        for number in range(3):
            item = {"PK": {"S": "a"}, "SK": {"S": "1"}, "n": {"N": str(number)}}
            item["hours"] = {"N": str(hours)}  # each is a change
            server.client().put_item(TableName="orders", Item=item)
        messages.append(newest_range(server))
        server.rollover()
        server.dilate_time(hours)
    old, *young = messages
    Path("failed.json").write_text(json.dumps([*young[::-1], old]))
    assert main(["redrive", "failed.json", "-o", "json"]) == 1
    printed = capsys.readouterr()
    given = [
        json.loads(each)["dynamodb"]["NewImage"]["n"]["N"] for each in printed.out.splitlines()
    ]
    assert given == ["0", "1", "2"] * 2
    assert len(re.findall("GONE: orders, .*the stream no longer holds all of it", printed.err)) == 1
    assert "2 of 3 ranges handled, 1 gone" in printed.err


def newest_range(server: DynamoDBLocal) -> dict[str, Any]:
    """A message for all that the open shard holds."""
    client = server.client("dynamodbstreams")
    arn = client.list_streams()["Streams"][0]["StreamArn"]
    shards = client.describe_stream(StreamArn=arn)["StreamDescription"]["Shards"]
    (shard,) = [
        each for each in shards if "EndingSequenceNumber" not in each["SequenceNumberRange"]
    ]
    at = {"StreamArn": arn, "ShardId": shard["ShardId"], "ShardIteratorType": "TRIM_HORIZON"}
    iterator = client.get_shard_iterator(**at)["ShardIterator"]
    records = client.get_records(ShardIterator=iterator)["Records"]
    numbers = [each["dynamodb"]["SequenceNumber"] for each in records]
    batch = {"streamArn": arn, "shardId": shard["ShardId"], "batchSize": len(numbers)}
    batch |= {"startSequenceNumber": numbers[0], "endSequenceNumber": numbers[-1]}
    return {"DDBStreamBatchInfo": batch}
