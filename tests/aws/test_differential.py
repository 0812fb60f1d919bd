"""The same environment, and beside us plain boto3: the same URL, headers, body and errors."""

from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError

from watcher.aws.client import StreamsClient
from watcher.aws.config import AwsConfig
from watcher.aws.connect import for_worker
from watcher.aws.fast_http import RequestTemplate
from watcher.aws.model import AfterSequence, AtTime, Latest, Position, TrimHorizon
from watcher.errors import StreamError, TransientError
from watcher.version import __version__

from .certificates import inspected
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


# What is sent


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
        assert all(f"watcher/{__version__}" in each for each in agents)
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


@pytest.mark.parametrize(
    "region",
    ["us-east-1", "eu-south-2", "cn-north-1", "us-gov-west-1", "us-iso-east-1", "eusc-de-east-1"],
)
@pytest.mark.parametrize("fips", ["false", "true"])
@pytest.mark.parametrize("dualstack", ["false", "true"])
def test_the_url_is_boto3s(
    logged_in: FakeAWS, monkeypatch: pytest.MonkeyPatch, region: str, fips: str, dualstack: str
) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    monkeypatch.setenv("AWS_USE_FIPS_ENDPOINT", fips)
    monkeypatch.setenv("AWS_USE_DUALSTACK_ENDPOINT", dualstack)
    check_url(f"arn:aws:dynamodb:{region}:123456789012:table/a/stream/b", region)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("AWS_ENDPOINT_URL_DYNAMODB_STREAMS", "http://127.0.0.1:1/base/"),
        ("AWS_ENDPOINT_URL_DYNAMODB", "http://127.0.0.1:2"),
        ("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true"),
        ("AWS_DEFAULTS_MODE", "in-region"),
        ("AWS_ACCOUNT_ID_ENDPOINT_MODE", "disabled"),
    ],
)
def test_the_url_is_boto3s_whatever_is_set(
    logged_in: FakeAWS, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    check_url(logged_in.table.stream_arn, "us-east-1")


def check_url(arn: str, region: str) -> None:
    """Nothing is sent."""
    urls: list[str] = []

    class Stop(Exception):
        pass

    def stop(request: Any, **_: Any) -> None:
        urls.append(request.url)
        raise Stop

    plain = boto3.Session(region_name=region).client("dynamodbstreams")
    plain.meta.events.register("before-send", stop)
    with pytest.raises(Stop):
        plain.get_records(ShardIterator=f"{arn}|1|x")
    worker = for_worker(AwsConfig(), arn)
    assert fast_call(worker).url == urls[0]


def fast_call(worker: StreamsClient) -> RequestTemplate:
    call = worker.fast.call_of("GetRecords")
    assert call is not None
    return call


# What comes back


# TLS


def read_through_the_shortcut(aws: FakeAWS) -> StreamsClient:
    worker = for_worker(AwsConfig(), aws.table.stream_arn)
    assert fast_call(worker)
    iterator, _ = worker.get_iterator(aws.table.stream_arn, aws.table.open_shards[0], TrimHorizon())
    worker.get_records(iterator)
    return worker


@pytest.mark.parametrize("how", ["AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "ca_bundle"])
def test_the_authorities_to_trust_are_those_of_boto3(
    logged_in: FakeAWS, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, how: str
) -> None:
    right = logged_in.ca_file
    _, wrong = inspected(tmp_path)

    def trust(file: str) -> None:
        if how == "ca_bundle":
            (tmp_path / ".aws" / "config").write_text(f"[default]\nca_bundle = {file}\n")
        else:
            monkeypatch.setenv(how, file)

    if how != "AWS_CA_BUNDLE":
        monkeypatch.delenv("AWS_CA_BUNDLE")
    trust(right)
    by_boto3().list_streams()
    worker = read_through_the_shortcut(logged_in)
    assert fast_call(worker).http.usable
    trust(wrong)
    with pytest.raises(BotoCoreError) as theirs:
        by_boto3(retries={"total_max_attempts": 1}).list_streams()
    with pytest.raises(StreamError) as ours:
        list(StreamsClient(AwsConfig()).list_streams())
    assert str(theirs.value) in str(ours.value)
    with pytest.raises(TransientError) as worker_s:
        read_through_the_shortcut(logged_in)
    assert "certificate verify failed" in str(worker_s.value)
