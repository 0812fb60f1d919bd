"""Lambda's shapes, against aws-lambda-powertools, which real functions are written with."""

import json
from decimal import Decimal
from typing import Any

import pytest
from aws_lambda_powertools.utilities.batch import (
    BatchProcessor,
    EventType,
    process_partial_response,
)
from aws_lambda_powertools.utilities.data_classes import DynamoDBStreamEvent
from aws_lambda_powertools.utilities.data_classes.dynamo_db_stream_event import (
    DynamoDBRecordEventName,
    StreamViewType,
)

from watcher import Record, UsageError, lambda_function
from watcher.aws.model import ShardKey
from watcher.delivery.dispatcher import Dispatcher
from watcher.delivery.failures import FailurePolicy
from watcher.delivery.lambda_functions import BadAnswerError, Context, lambda_record, processed

ARN = "arn:aws:dynamodb:eu-west-1:123456789012:table/orders/stream/2026-11-21T00:00:00.000"


def record(number: int, shard: str = "s") -> Record:
    wire = {
        "eventID": str(number),
        "eventName": "REMOVE",
        "eventVersion": "1.1",
        "eventSource": "aws:dynamodb",
        "awsRegion": "eu-west-1",
        "userIdentity": {"Type": "Service", "PrincipalId": "dynamodb.amazonaws.com"},
        "dynamodb": {
            "ApproximateCreationDateTime": 1790000000,
            "Keys": {"pk": {"S": f"k{number}"}},
            "OldImage": {"pk": {"S": f"k{number}"}, "data": {"B": "AAE="}, "n": {"N": "1.5"}},
            "SequenceNumber": str(number),
            "SizeBytes": 42,
            "StreamViewType": "NEW_AND_OLD_IMAGES",
        },
    }
    return Record.from_json(json.dumps(wire).encode(), shard, ARN)


def test_an_event_is_lambdas() -> None:
    (seen,) = DynamoDBStreamEvent({"Records": [lambda_record(record(7))]}).records
    assert seen.event_name is DynamoDBRecordEventName.REMOVE
    assert seen.event_source == "aws:dynamodb"
    assert seen.event_source_arn == ARN
    assert seen.aws_region == "eu-west-1"
    assert seen.user_identity == {"type": "Service", "principalId": "dynamodb.amazonaws.com"}
    change = seen.dynamodb
    assert change is not None
    assert change.approximate_creation_date_time == 1790000000
    assert change.keys == {"pk": "k7"}
    assert change.old_image["n"] == Decimal("1.5")
    assert change.old_image["data"] == "AAE="
    assert change.new_image == {}
    assert change.sequence_number == "7"
    assert change.size_bytes == 42
    assert change.stream_view_type is StreamViewType.NEW_AND_OLD_IMAGES
    assert lambda_record(record(7))["dynamodb"]["OldImage"]["data"] == {"B": "AAE="}


@pytest.mark.parametrize(
    ("answer", "done"),
    [
        (None, 3),
        ("processed 3 records", 3),
        ({"statusCode": 200}, 3),
        ({"batchItemFailures": None}, 3),
        ({"batchItemFailures": []}, 3),
        ({"batchItemFailures": [{"itemIdentifier": "2"}]}, 1),
        ({"batchItemFailures": [{"itemIdentifier": "3"}, {"itemIdentifier": "1"}]}, 0),
    ],
)
def test_an_answer_says_how_many_went_well(answer: Any, done: int) -> None:
    assert processed(answer, ["1", "2", "3"]) == done


@pytest.mark.parametrize(
    "failures",
    [
        *([{"itemIdentifier": None}], [{"itemIdentifier": "9"}]),
        *([{"itemIdentifier": "2"}, {}], ["1"], "1", {"itemIdentifier": "1"}, 3),
    ],
    ids=str,
)
def test_an_answer_that_names_nothing_of_the_batch_fails_it_all(failures: Any) -> None:
    with pytest.raises(BadAnswerError):
        processed({"batchItemFailures": failures}, ["1", "2", "3"])


def test_powertools_batch_processor_reports_what_is_retried() -> None:
    processor = BatchProcessor(event_type=EventType.DynamoDBStreams)
    calls: list[list[str]] = []
    refused = {"k3"}

    def one(record: Any) -> None:
        if record.dynamodb.keys["pk"] in refused:
            refused.clear()
            raise ValueError("not yet")

    def handler(event: dict[str, Any], context: Context) -> Any:
        calls.append([each["dynamodb"]["SequenceNumber"] for each in event["Records"]])
        return process_partial_response(
            event=event,
            record_handler=one,
            processor=processor,
            context=context,  # type: ignore[arg-type]
        )

    observer = lambda_function(handler)
    dispatcher = Dispatcher([observer], FailurePolicy.parse("retry:1,log"))
    for number in (1, 2, 3, 4):
        dispatcher.deliver(record(number))
    dispatcher.page_end(ShardKey(ARN, "s"))
    assert calls == [["1", "2", "3", "4"], ["3", "4"]]
    assert dispatcher.failures == 0


def test_a_record_that_waits_for_its_batch_or_whose_batch_failed_is_not_processed() -> None:
    def handler(event: dict[str, Any], context: object) -> None:
        assert event["Records"][0]["dynamodb"]["SequenceNumber"] != "3"

    observer = lambda_function(handler, batch_size=2, batch_window=60)
    dispatcher = Dispatcher([observer], FailurePolicy())
    counts = []
    for number in (1, 2, 3, 4):
        dispatcher.deliver(record(number))
        counts.append(dispatcher.processed({"orders": number})["orders", observer.name])
    assert counts == [0, 2, 2, 2]
    assert dispatcher.failed["orders", observer.name] == 2


def test_a_context_has_what_functions_look_at() -> None:
    seen: list[Context] = []
    observer = lambda_function(lambda event, context: seen.append(context))
    dispatcher = Dispatcher([observer], FailurePolicy())
    for _ in range(2):
        dispatcher.deliver(record(1))
        dispatcher.page_end(ShardKey(ARN, "s"))
    first, second = seen
    assert first.aws_request_id != second.aws_request_id
    assert first.function_name == "<lambda>"
    assert first.invoked_function_arn.startswith("arn:aws:lambda:eu-west-1:123456789012:function:")
    assert 0 < first.get_remaining_time_in_millis() <= 900_000
    assert first.memory_limit_in_mb == "128"
    assert first.log_group_name == "/aws/lambda/<lambda>"


def test_a_function_that_a_call_does_not_run_is_refused() -> None:
    async def handler(event: Any, context: Any) -> None: ...

    with pytest.raises(UsageError, match="handler is async, and nothing would await it"):
        lambda_function(handler)


def test_a_function_that_answers_a_coroutine_has_failed() -> None:
    async def inner() -> None: ...

    dispatcher = Dispatcher([lambda_function(lambda *_: inner())], FailurePolicy())
    dispatcher.deliver(record(1))
    dispatcher.page_end(ShardKey(ARN, "s"))
    assert dispatcher.failures == 1


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"batch_size": 0}, "batch_size 0: give 1 to 10000"),
        ({"batch_window": -1.0}, "batch_window -1: give 0"),
        ({"batch_window": float("nan")}, "batch_window nan: give"),
    ],
)
def test_a_bad_setting_is_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        lambda_function(print, **settings)
