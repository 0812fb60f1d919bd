"""The same environment, and beside us plain boto3: the same URL, headers, body and errors."""

from typing import Any

import boto3
import pytest
from botocore.config import Config

from watcher.aws.client import StreamsClient
from watcher.aws.config import AwsConfig
from watcher.aws.connect import for_worker
from watcher.aws.fast_http import RequestTemplate
from watcher.aws.model import AfterSequence, AtTime, Latest, Position, TrimHorizon
from watcher.version import __version__

from .fake import FakeAWS, Seen

pytestmark = pytest.mark.proof

KEY, SECRET = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCY"


@pytest.fixture
def logged_in(aws: FakeAWS, monkeypatch: pytest.MonkeyPatch) -> FakeAWS:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    return aws


def by_boto3(service: str = "dynamodbstreams", **settings: Any) -> Any:
    return boto3.Session().client(service, config=Config(**settings))  # type: ignore[call-overload]


def what_matters(seen: Seen) -> tuple[Any, ...]:
    """A request without what differs from one to the next, or names the program."""
    ignored = {"authorization", "x-amz-date", "user-agent", "amz-sdk-invocation-id"}
    ignored |= {"amz-sdk-request", "accept-encoding", "connection", "x-amz-user-agent"}
    headers = {name: text for name, text in seen.headers.items() if name not in ignored}
    signed = seen.headers["authorization"].partition("SignedHeaders=")[2].partition(",")[0]
    scope = seen.headers["authorization"].partition("/")[2].partition("/")[2].partition(",")[0]
    return seen.operation, seen.host, headers, seen.body, seen.key, seen.refused, signed, scope


def test_each_call_is_sent_as_boto3_sends_it(logged_in: FakeAWS) -> None:
    """Ours through the client, ours through the shortcut, and boto3's."""
    aws = logged_in
    number = aws.table.write("a")[0]
    arn = aws.table.stream_arn
    shard = next(shard.id for shard in aws.table.shards if shard.written)
    moment = aws.accounts.now().replace(microsecond=0)
    positions: list[Position] = [Latest(), TrimHorizon(), AfterSequence(number), AtTime(moment)]
    sent: list[list[tuple[Any, ...]]] = []
    for streams in (StreamsClient(AwsConfig()), for_worker(AwsConfig(), arn)):
        aws.requests.clear()
        streams.latest_stream("orders")
        list(streams.list_streams("orders"))
        streams.list_shards(arn)
        streams.list_children(arn, shard)
        for position in positions:
            iterator, _ = streams.get_iterator(arn, shard, position)
        streams.get_records(iterator)
        sent.append([what_matters(seen) for seen in aws.requests])
        agents = {seen.headers["user-agent"] for seen in aws.requests}
        assert agents and all(f"watcher/{__version__}" in each for each in agents)
    aws.requests.clear()
    plain = by_boto3()
    by_boto3("dynamodb").describe_table(TableName="orders")
    plain.list_streams(TableName="orders")
    plain.describe_stream(StreamArn=arn)
    plain.describe_stream(StreamArn=arn, ShardFilter={"Type": "CHILD_SHARDS", "ShardId": shard})
    of = {"StreamArn": arn, "ShardId": shard}
    for kind in ("LATEST", "TRIM_HORIZON"):
        plain.get_shard_iterator(**of, ShardIteratorType=kind)
    after = {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "SequenceNumber": number}
    plain.get_shard_iterator(**of, **after)
    plain.get_shard_iterator(**of, ShardIteratorType="AT_TIMESTAMP", Timestamp=moment)
    plain.get_records(ShardIterator=iterator)
    theirs = [what_matters(seen) for seen in aws.requests]
    length = {"content-length"}
    for ours in sent:
        assert [call[:2] + call[3:-2] for call in ours[:-1]] == [
            call[:2] + call[3:-2] for call in theirs[:-1]
        ]
        for mine, other in zip(ours, theirs, strict=True):
            assert mine[2].keys() - length == other[2].keys() - length
            assert all(mine[2][name] == other[2][name] for name in mine[2].keys() - length)
            assert mine[-2:] == other[-2:]
    assert not any(seen.refused for seen in aws.requests)


def fast_call(worker: StreamsClient) -> RequestTemplate:
    call = worker.fast.call_of("GetRecords")
    assert call is not None
    return call


def read_through_the_shortcut(aws: FakeAWS) -> StreamsClient:
    worker = for_worker(AwsConfig(), aws.table.stream_arn)
    assert fast_call(worker)
    iterator, _ = worker.get_iterator(aws.table.stream_arn, aws.table.open_shards[0], TrimHorizon())
    worker.get_records(iterator)
    return worker
