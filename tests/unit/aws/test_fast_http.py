"""Where speed was bought by going around something: what was gone around still holds."""

from typing import Any

import pytest
from botocore.parsers import ResponseParserError
from botocore.session import get_session

from tests.simulator import Simulator
from watcher.aws.client import StreamsClient
from watcher.aws.config import AwsConfig
from watcher.aws.connect import for_worker
from watcher.aws.credentials import SigningCredentials
from watcher.aws.fast_http import RawPages
from watcher.aws.model import AtTime, TrimHorizon
from watcher.errors import CredentialsError, ExpiredIteratorError, UnexpectedAnswerError
from watcher.records import page


@pytest.fixture
def worker(simulator: Simulator) -> StreamsClient:
    return for_worker(AwsConfig("us-east-1", endpoint_url=simulator.endpoint), simulator.stream_arn)


def sent_by_botocore(streams: StreamsClient) -> list[dict[str, str]]:
    """The headers of what botocore itself sends from now on."""
    sent: list[dict[str, str]] = []
    streams.api.meta.events.register(
        "before-send.dynamodb-streams", lambda request, **_: sent.append(dict(request.headers))
    )
    return sent


def test_a_worker_reads_without_botocores_machinery(
    simulator: Simulator, worker: StreamsClient
) -> None:
    simulator.write("a", 3)
    sent = sent_by_botocore(worker)
    shard = simulator.shards[0].id
    iterator, time = worker.get_iterator(simulator.stream_arn, shard, TrimHorizon())
    assert len(page.decode(worker.get_records(iterator)).Records) == 3
    worker.get_iterator(simulator.stream_arn, shard, AtTime(time))
    assert sent == []


def test_what_was_asked_for_ahead_is_asked_for_again_where_its_connection_is_gone(
    simulator: Simulator, worker: StreamsClient
) -> None:
    """Whoever has taken the last page may have taken minutes; other errors come as it is taken."""
    iterator, _ = worker.get_iterator(simulator.stream_arn, simulator.shards[0].id, TrimHorizon())
    simulator.fail_next("GetRecords", "reset")
    answer = worker.prefetch_records(iterator)
    assert answer is not None
    assert page.decode(answer()).Records == []
    simulator.fail_next("GetRecords", "ExpiredIteratorException")
    answer = worker.prefetch_records(iterator)
    assert answer is not None
    with pytest.raises(ExpiredIteratorError):
        answer()


def test_without_credentials_for_a_moment_nothing_is_asked_for_ahead(
    simulator: Simulator, worker: StreamsClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The read itself meets the same error, and knows what to do about it."""

    def refuse(_: object) -> None:
        raise CredentialsError("no new AWS credentials")

    iterator, _ = worker.get_iterator(simulator.stream_arn, simulator.shards[0].id, TrimHorizon())
    with monkeypatch.context() as moment:
        moment.setattr(SigningCredentials, "get_frozen_credentials", refuse)
        assert worker.prefetch_records(iterator) is None
        with pytest.raises(CredentialsError):
            worker.get_records(iterator)
    assert worker.prefetch_records(iterator) is not None


def test_few_are_asked_for_ahead_as_each_answer_may_hold_a_megabyte(
    simulator: Simulator, worker: StreamsClient
) -> None:
    iterator, _ = worker.get_iterator(simulator.stream_arn, simulator.shards[0].id, TrimHorizon())
    answers = [worker.prefetch_records(iterator) for _ in range(6)]
    assert [answer is not None for answer in answers] == [True] * 4 + [False] * 2
    assert all(page.decode(answer()) for answer in answers if answer is not None)
    answers.clear()
    answer = worker.prefetch_records(iterator)
    assert answer is not None
    answer()


def test_behind_a_proxy_botocore_makes_the_calls(
    simulator: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    connection = AwsConfig("us-east-1", endpoint_url="http://streams.example:8000")
    worker = for_worker(connection, simulator.stream_arn)
    assert worker.fast.call_of("GetRecords") is None
    assert worker.fast.call_of("GetShardIterator") is None


@pytest.mark.parametrize("operation", ["GetItem", "PutItem", "BatchWriteItem", "Scan"])
@pytest.mark.parametrize("body", [b"", b"<html>", b"\xbf\xff"])
def test_what_is_no_json_is_no_answer_of_a_table_either(operation: str, body: bytes) -> None:
    """botocore takes it for an answer without members: all is written, or no such item."""
    model = get_session().get_service_model("dynamodb")
    shape = model.operation_model(operation).output_shape
    answer = {"status_code": 204, "headers": {}, "body": body}
    parser: Any = RawPages().create_parser("json")
    with pytest.raises(UnexpectedAnswerError, match=f"{operation}: HTTP 204"):
        parser.parse(answer, shape)
    get_item = model.operation_model("GetItem").output_shape
    with pytest.raises(ResponseParserError):
        parser.parse(answer | {"status_code": 200, "body": b'{"Item":{"pk":{"S":"a'}, get_item)
    assert parser.parse(answer | {"body": b""}, None)["ResponseMetadata"], "nothing was asked for"
