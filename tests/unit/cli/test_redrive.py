"""`redrive`: what a Lambda mapping's destination names goes to handlers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.simulator import Simulator
from tests.unit.time_machine.test_history import archived
from watcher.cli import main
from watcher.stream import Stream

MINE = """
import os, pathlib

def handle(record):
    with open("handled", "a") as file:
        print(record.sequence_number, record.new["pk"], record.new["v"], file=file)
    BODY
"""


@pytest.fixture
def simulator(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Simulator]:
    """A table `orders`; queues are moto's, in this process."""
    from moto import mock_aws

    monkeypatch.chdir(tmp_path)
    with mock_aws(), Simulator(table="orders") as made:
        own = {**made.environment, "AWS_ENDPOINT_URL_DYNAMODB_STREAMS": made.endpoint}
        del own["AWS_ENDPOINT_URL"]
        for name, value in own.items():
            monkeypatch.setenv(name, value)
        yield made


@pytest.fixture
def queue(simulator: Simulator) -> Any:
    """The client, and a queue `failed`."""
    import boto3

    client = boto3.client("sqs", region_name="us-east-1")
    client.create_queue(QueueName="failed")
    return client


def message(simulator: Simulator, numbers: list[str], **more: Any) -> dict[str, Any]:
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
            **more,
        },
    }


def send(queue: Any, *messages: dict[str, Any] | str) -> None:
    url = queue.get_queue_url(QueueName="failed")["QueueUrl"]
    for each in messages:
        queue.send_message(
            QueueUrl=url, MessageBody=each if isinstance(each, str) else json.dumps(each)
        )


def left(queue: Any) -> list[str]:
    """The first numbers of the ranges that are still in the queue, for anybody to receive."""
    url = queue.get_queue_url(QueueName="failed")["QueueUrl"]
    found: list[str] = []
    handles: list[str] = []
    while answer := queue.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages"):
        handles += [each["ReceiptHandle"] for each in answer]
        bodies = [json.loads(each["Body"]) for each in answer]
        found += [each["DDBStreamBatchInfo"]["startSequenceNumber"] for each in bodies]
    for each in handles:
        queue.change_message_visibility(QueueUrl=url, ReceiptHandle=each, VisibilityTimeout=0)
    return sorted(found, key=int)


def redrive(place: str, *more: str, body: str = "") -> int:
    Path("mine.py").write_text(MINE.replace("BODY", body))
    return main(["redrive", place, "--handlers", ".", "--mine", *more])


def handled() -> list[str]:
    """The numbers that the handler had, in its order."""
    file = Path("handled")
    return [line.split()[0] for line in file.read_text().splitlines()] if file.exists() else []


def last_line(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    "place", ["failed", "sqs://failed", "arn:aws:sqs:us-east-1:123456789012:failed", "URL"]
)
def test_ranges_are_fetched_in_order_and_their_messages_deleted(
    simulator: Simulator, queue: Any, capsys: pytest.CaptureFixture[str], place: str
) -> None:
    numbers = simulator.write("a", 17)
    batch, other = numbers[3:7], numbers[9:12]
    send(queue, message(simulator, other), message(simulator, batch))
    place = place.replace("URL", queue.get_queue_url(QueueName="failed")["QueueUrl"])
    assert redrive(place) == 0
    assert handled() == [*batch, *other]
    assert left(queue) == []
    assert last_line(capsys) == (
        "Done: 7 redriven, 0 failed, 0 unreadable; 2 of 2 ranges handled and deleted"
    )


def test_an_item_s_changes_come_in_order_over_splits_and_rotations(
    simulator: Simulator, queue: Any
) -> None:
    ranges = [simulator.write("a", 3)]
    for change in (simulator.rotate, simulator.split, simulator.rotate):
        for shard_id in simulator.open_shards:
            change(shard_id)
        ranges.append(simulator.write("a", 3))
    send(
        queue, *(message(simulator, each) for each in (ranges[2], ranges[0], ranges[3], ranges[1]))
    )
    assert redrive("failed") == 0
    assert handled() == [number for each in ranges for number in each]
    assert left(queue) == []


FORMS: dict[str, Callable[[list[dict[str, Any]]], str]] = {
    "lines": lambda each: "".join(json.dumps(one) + "\n" for one in each),
    "one document": lambda each: json.dumps(each, indent=2),
    "documents": lambda each: "\n".join(json.dumps(one, indent=2) for one in each),
    "envelopes": lambda each: "\n".join(
        json.dumps({"Type": "Notification", "Message": json.dumps(one)}) for one in each
    ),
    "received": lambda each: json.dumps(
        {"Messages": [{"MessageId": "1", "Body": json.dumps(one)} for one in each]}, indent=4
    ),
    "received from a topic": lambda each: json.dumps(
        {
            "Messages": [
                {"Body": json.dumps({"Type": "Notification", "Message": json.dumps(one)})}
                for one in each
            ]
        }
    ),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_file_has_messages_in_any_of_their_forms(
    simulator: Simulator,
    capsys: pytest.CaptureFixture[str],
    form: Callable[[list[dict[str, Any]]], str],
) -> None:
    first, second = simulator.write("a", 2), simulator.write("b", 2)
    Path("failed.json").write_text(form([message(simulator, second), message(simulator, first)]))
    assert redrive("failed.json") == 0
    assert handled() == [*first, *second]
    assert last_line(capsys) == "Done: 4 redriven, 0 failed, 0 unreadable; 2 of 2 ranges handled"


def test_messages_of_a_pipe_and_of_a_topic_s_queue_are_the_same(
    simulator: Simulator, queue: Any
) -> None:
    numbers = simulator.write("a", 2)
    lambdas = message(simulator, numbers[:1])
    pipes = {"context": {"condition": "RetryAttemptsExhausted"}, "version": "1.0"}
    pipes["DDBStreamBatchInfo"] = message(simulator, numbers[1:])["DDBStreamBatchInfo"]
    send(queue, json.dumps({"Type": "Notification", "Message": json.dumps(lambdas)}), pipes)
    assert redrive("failed") == 0
    assert handled() == numbers
    assert left(queue) == []


def test_what_no_longer_is_in_the_stream_is_named_and_its_message_stays(
    simulator: Simulator, queue: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    old, partly = simulator.write("a", 3), simulator.write("a", 4)
    simulator.trim(5)
    young = simulator.write("a", 2)
    send(queue, *(message(simulator, each) for each in (young, old, partly)))
    assert redrive("failed") == 1
    assert handled() == young, "a range is handed over whole, or not at all"
    assert left(queue) == [old[0], partly[0]]
    told = capsys.readouterr().err.splitlines()
    gone = [line for line in told if "GONE" in line]
    assert len(gone) == 2
    assert f"{old[0]} to {old[-1]} (3 records of 2026-11-21" in gone[0]
    assert gone[0].endswith("): the stream no longer holds all of it; an archive may")
    assert told[-1].endswith("; 1 of 3 ranges handled and deleted, 2 gone")


def test_a_shard_that_is_gone_and_a_stream_that_is_deleted_are_named(
    simulator: Simulator, queue: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    numbers = simulator.write("a", 3)
    shard_id = simulator.records[0].shard_id
    lost = message(simulator, numbers)
    simulator.rotate(shard_id)
    simulator.drop_shard(shard_id)
    young = simulator.write("a", 2)
    send(queue, lost, message(simulator, young))
    assert redrive("failed") == 1
    assert handled() == young
    assert left(queue) == [numbers[0]]


def test_what_the_stream_lacks_comes_from_an_archive(
    simulator: Simulator, queue: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, partly = simulator.write("a", 3), simulator.write("a", 4)
    days = tmp_path / "lake" / "date=2026-11-21"
    days.mkdir(parents=True)
    (tmp_path / "lake" / "date=2020-01-01").mkdir()
    (tmp_path / "lake" / "date=2020-01-01" / "part-0.json").write_text("not read\n")
    records = list(iter(Stream(simulator.stream_arn, "trim_horizon").__next__, None))
    for number, record in enumerate(reversed(records)):
        row = archived(json.loads(bytes(record.raw)), record.shard_id, wire=True)
        (days / f"part-{number:05}.json").write_text(json.dumps(row) + "\n")
    simulator.trim(5)
    young = simulator.write("a", 2)
    send(queue, *(message(simulator, each) for each in (young, old, partly)))
    assert redrive("failed", "--archive", "lake") == 0
    assert handled() == [*old, *partly, *young]
    assert left(queue) == []


def test_what_an_archive_lacks_as_well_stays(
    simulator: Simulator, queue: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, older = simulator.write("a", 3), simulator.write("b", 3)
    day = tmp_path / "lake" / "date=2026-11-21"
    day.mkdir(parents=True)
    for record in iter(Stream(simulator.stream_arn, "trim_horizon").__next__, None):
        if record.sequence_number != old[1]:
            row = archived(json.loads(bytes(record.raw)), record.shard_id, wire=False)
            (day / f"part-{record.sequence_number}.json").write_text(json.dumps(row) + "\n")
    simulator.trim(6)
    send(queue, message(simulator, old), message(simulator, older))
    assert redrive("failed", "--archive", "lake") == 1
    assert handled() == older
    assert left(queue) == [old[0]]
    told = capsys.readouterr().err
    assert "neither the stream nor the archive holds all of it" in told
    assert "images are plain JSON" in told


def test_a_record_of_two_ranges_is_delivered_once(simulator: Simulator, queue: Any) -> None:
    numbers = simulator.write("a", 12)
    parts = [(0, 6), (3, 9), (3, 5), (0, 6), (10, 12)]
    send(queue, *(message(simulator, numbers[first:last]) for first, last in parts))
    assert redrive("failed") == 0
    assert handled() == [*numbers[:9], *numbers[10:]]
    assert left(queue) == []


def test_the_messages_of_a_record_that_fails_stay_and_no_others(
    simulator: Simulator, queue: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    numbers = simulator.write("a", 12)
    parts = [(0, 3), (2, 6), (5, 8), (6, 9), (9, 12)]
    send(queue, *(message(simulator, numbers[first:last]) for first, last in parts))
    assert redrive("failed", body=f"assert record.sequence_number != '{numbers[5]}'") == 1
    assert handled() == numbers
    assert left(queue) == [numbers[2], numbers[5]]
    assert "12 redriven, 1 failed" in last_line(capsys)
    Path("handled").unlink()
    assert redrive("failed") == 0
    assert handled() == numbers[2:8]
    assert left(queue) == []


def test_the_next_run_has_what_was_dead_letters_no_more(simulator: Simulator, queue: Any) -> None:
    numbers = simulator.write("a", 3)
    send(queue, message(simulator, numbers))
    body = f"assert record.sequence_number != '{numbers[1]}'"
    assert redrive("failed", "--on-error", "dead-letter:dead.jsonl", body=body) == 1
    assert handled() == numbers
    assert left(queue) == []
    assert len(Path("dead.jsonl").read_text().splitlines()) == 1


def test_a_failure_under_stop_ends_it_with_the_message_in_the_queue(
    simulator: Simulator, queue: Any
) -> None:
    first, second, third = (simulator.write("a", 2) for _ in range(3))
    send(queue, *(message(simulator, each) for each in (first, second, third)))
    body = f"assert record.sequence_number != '{second[0]}'"
    assert redrive("failed", "--on-error", "stop", body=body) == 1
    assert handled() == [*first, second[0]]
    assert left(queue) == [second[0], third[0]]


def test_a_lambda_function_gets_each_range_as_batches_of_its_own(
    simulator: Simulator, queue: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    Path("app_of_ranges.py").write_text(
        "import os\n"
        "region = os.environ['AWS_REGION']\n"
        "def handler(event, context):\n"
        "    numbers = [each['dynamodb']['SequenceNumber'] for each in event['Records']]\n"
        "    with open('handled', 'a') as file:\n"
        "        print(*numbers, file=file)\n"
        "    images = [each['dynamodb']['NewImage'] for each in event['Records']]\n"
        "    assert '5' not in [each['v']['N'] for each in images]\n"
    )
    numbers = simulator.write("a", 9)
    parts = [numbers[:3], numbers[3:6], numbers[6:]]
    send(queue, *(message(simulator, each) for each in parts))
    assert main(["redrive", "failed", "--lambda", "app_of_ranges.handler", "--retries", "0"]) == 1
    lines = Path("handled").read_text().splitlines()
    assert lines == [" ".join(each) for each in parts]
    assert left(queue) == [numbers[3]]


def test_the_mapping_s_own_filter_deletes_messages_and_a_choice_does_not(
    simulator: Simulator, queue: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    numbers = [simulator.write(key)[0] for key in "abab"]
    mapped = {"pk": {"S": ["a"]}}
    pattern = json.dumps({"dynamodb": {"Keys": mapped}})
    # Its function had two of them.
    send(queue, message(simulator, numbers, batchSize=2))
    assert redrive("failed", "--key", "pk=a") == 0
    assert handled() == [numbers[0], numbers[2]]
    assert left(queue) == [numbers[0]]
    assert "2 redriven, 2 filtered out, 0 failed" in last_line(capsys)
    other = json.dumps({"dynamodb": {"Keys": mapped, "NewImage": {"v": {"N": ["1"]}}}})
    assert redrive("failed", "--filter", other) == 0
    assert left(queue) == [numbers[0]], "the function had more than these"
    assert redrive("failed", "--filter", pattern) == 0
    assert left(queue) == []


def test_what_names_no_range_stays_and_is_named(
    simulator: Simulator, queue: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    numbers = simulator.write("a", 2)
    wrong: list[dict[str, Any] | str] = [
        message(simulator, numbers, startSequenceNumber="none"),
        message(simulator, numbers, streamArn="orders"),
        message(simulator, numbers[::-1], batchSize=2),
        {"KinesisBatchInfo": {}},
        "no JSON",
        "[]",
    ]
    send(queue, message(simulator, numbers), *wrong)
    assert redrive("failed") == 1
    assert handled() == numbers
    told = capsys.readouterr().err.splitlines()
    assert told[-1].startswith("Done: 2 redriven, 0 failed, 6 unreadable; 1 of 1 range")
    reasons = [line for line in told if " message " in f" {line}"]
    assert len(reasons) == 6
    for text in ("startSequenceNumber", "not a DynamoDB stream's ARN", "behind its end"):
        assert any(text in line for line in reasons)
    url = queue.get_queue_url(QueueName="failed")["QueueUrl"]
    answer = queue.receive_message(QueueUrl=url, MaxNumberOfMessages=10)
    assert len(answer["Messages"]) == 6


def test_a_range_that_no_stream_ever_had_keeps_no_other_waiting(
    simulator: Simulator, queue: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    numbers = simulator.write("a", 4)
    later = str(int(numbers[-1]) + 10)
    never = message(simulator, numbers[:1], startSequenceNumber="1" * 21)
    send(queue, never, message(simulator, numbers[2:], endSequenceNumber=later))
    send(queue, message(simulator, numbers[:2]))
    assert redrive("failed") == 1
    assert handled() == numbers
    assert left(queue) == ["1" * 21, numbers[2]]
    assert "1 of 3 ranges handled and deleted, 2 gone" in last_line(capsys)


def test_trouble_with_the_service_loses_nothing(simulator: Simulator, queue: Any) -> None:
    parts = [simulator.write("a", 20) for _ in range(4)]
    send(queue, *(message(simulator, each) for each in parts))
    simulator.set_faults(
        error_rate=0.1, throttle_rate=0.1, short_page_rate=0.5, open_empty=2, max_records=15
    )
    assert redrive("failed") == 0
    assert handled() == [number for each in parts for number in each]
    assert left(queue) == []


def test_a_dry_run_says_how_much_there_is_and_changes_nothing(
    simulator: Simulator, queue: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    old, young, more = simulator.write("a", 3), simulator.write("a", 4), simulator.write("b", 2)
    simulator.trim(3)
    undated = message(simulator, more)
    for name in ("approximateArrivalOfFirstRecord", "approximateArrivalOfLastRecord", "batchSize"):
        del undated["DDBStreamBatchInfo"][name]
    send(queue, message(simulator, old), undated, message(simulator, young))
    assert main(["redrive", "failed", "--dry-run", "--utc"]) == 1
    printed = capsys.readouterr()
    assert printed.out == (
        "orders: 3 ranges, 6 records, made 2026-11-21T08:13:10+00:00 to 2026-11-21T08:13:11+00:00\n"
    )
    assert "GONE" in printed.err
    assert printed.err.splitlines()[-1] == (
        "Dry run: nothing is handed over, no message is deleted"
    )
    assert left(queue) == [old[0], young[0], more[0]]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["nothing.json", "--print-json"], "can't read nothing.json: No such file"),
        (["empty.json", "--print-json"], "empty.json has no message of a Lambda mapping's"),
        (["s3://bucket/prefix", "--print-json"], "for replay"),
        (["arn:aws-cn:sns:cn-north-1:1:failed", "--print-json"], "the queue that is subscribed"),
        (["none", "--print-json"], "none: .*does not exist"),
        (["failed"], "choose the handlers to redrive to, such as --lambda app.handler"),
        (
            ["empty.json", "--print-json", "--on-error", "dead-letter:empty.json"],
            "can't be read and take new dead letters",
        ),
        (["failed", "--print-json", "--archive", "nowhere"], "can't read the archive nowhere"),
    ],
)
def test_what_can_not_be_redriven_is_a_usage_error(
    simulator: Simulator,
    queue: Any,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    told: str,
) -> None:
    Path("empty.json").write_text("{}\n")
    assert main(["redrive", *arguments]) == 2
    assert re.search(told, capsys.readouterr().err)


def test_hostile_messages_steer_no_terminal(
    simulator: Simulator, queue: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    numbers = simulator.write("a", 2)
    send(queue, message(simulator, numbers, shardId="\x1b]0;gone\x07\u202e"))
    send(queue, message(simulator, numbers, streamArn="\x1b[31m"))
    send(queue, {"\x1b[31m": 1}, "\x1b[31m")
    assert redrive("failed") == 1
    told = capsys.readouterr().err
    assert "GONE: orders, shard \\x1b]0;gone\\x07" in told
    assert not re.search("[\x1b\x07\u202e]", told)


def test_handlers_see_nothing_of_what_is_redacted(
    simulator: Simulator, queue: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    (number,) = simulator.write("secret", 1)
    send(queue, message(simulator, [number]))
    failing = "raise ValueError(record, record.new)"
    words = "--redact", "pk", "--key", "pk=secret", "--on-error", "dead-letter:letters"
    assert redrive("failed", *words, body=failing) == 1
    seen = Path("handled").read_text(), Path("letters").read_text(), *capsys.readouterr()
    assert "***" in seen[0] and "***" in seen[1]
    assert not any("secret" in text for text in seen)
