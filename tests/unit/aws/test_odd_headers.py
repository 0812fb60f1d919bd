"""What a front of the service, or a proxy before it, may put into an answer's head and body."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime

import pytest

from tests.support.http_server import Answered, PlayedServer
from watcher.aws.config import AwsConfig
from watcher.aws.connect import for_loop, for_worker
from watcher.aws.counters import Counters
from watcher.aws.listings import service_time
from watcher.aws.model import AfterSequence, TrimHorizon
from watcher.errors import WatcherError
from watcher.records import page

ARN = "arn:aws:dynamodb:us-east-1:123456789012:table/orders/stream/1"


def time_of(date: str) -> datetime:
    return service_time({"ResponseMetadata": {"HTTPHeaders": {"date": date}}})


@pytest.mark.parametrize("zone", [" GMT", "", " -0000", " +0000", " UTC"])
def test_a_date_is_in_utc_whatever_it_says_of_its_zone(zone: str) -> None:
    expected = datetime(2026, 11, 22, 3, 4, 5, tzinfo=UTC)
    assert time_of("Sun, 22 Nov 2026 03:04:05" + zone) == expected


@pytest.fixture
def server() -> Iterator[PlayedServer]:
    with PlayedServer() as played:
        yield played


def say(server: PlayedServer, status: int, body: bytes | Iterable[bytes]) -> AwsConfig:
    """What it answers from now on; the way to it."""
    kind = {"Content-Type": "application/x-amz-json-1.0"}
    server.answer = lambda asked: Answered(status, body, kind)
    return AwsConfig("us-east-1", endpoint_url=server.url)


@pytest.mark.parametrize("status", [200, 400, 500])
@pytest.mark.parametrize(
    "body", [b"\xff\xfe\x00", b'{"__type":"caf\xe9","message":"\xe9"}', b'{"ShardIterator":"\xff"}']
)
def test_bodies_in_no_encoding_are_errors_of_ours(
    server: PlayedServer, status: int, body: bytes
) -> None:
    connection = say(server, status, body)
    loop, worker = for_loop(connection, ARN, Counters()), for_worker(connection, ARN)
    calls: list[Callable[[], object]] = [
        lambda: loop.list_shards(ARN),
        lambda: loop.list_children(ARN, "shardId-1"),
        lambda: loop.latest_stream("orders"),
        lambda: list(loop.list_streams()),
        lambda: worker.get_iterator(ARN, "shardId-1", TrimHorizon()),
        lambda: page.decode(worker.get_records("iterator")),
    ]
    for call in calls:
        with pytest.raises(WatcherError) as caught:
            call()
        assert "\n" not in str(caught.value)
    loop.close()
    worker.close()


def test_an_emulators_short_number_goes_to_the_service_also_through_botocore(
    server: PlayedServer,
) -> None:
    client = for_worker(say(server, 200, b'{"ShardIterator":"next"}'), ARN)
    call = client.fast.call_of("GetShardIterator")
    assert call is not None
    call.http.usable = False
    assert client.get_iterator(ARN, "shardId-1", AfterSequence("4"))[0] == "next"
    client.close()
