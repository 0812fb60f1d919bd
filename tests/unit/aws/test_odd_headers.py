"""What a front of the service, or a proxy before it, may put into an answer's head and body."""

from __future__ import annotations

import contextlib
import gc
import http.server
import threading
import weakref
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watcher.aws.config import AwsConfig
from watcher.aws.connect import for_loop, for_worker
from watcher.aws.counters import Counters
from watcher.aws.listings import service_time
from watcher.aws.model import AfterSequence, TrimHorizon
from watcher.errors import UnexpectedAnswerError, WatcherError
from watcher.records import page

ARN = "arn:aws:dynamodb:us-east-1:123456789012:table/orders/stream/1"


def time_of(date: str) -> datetime:
    return service_time({"ResponseMetadata": {"HTTPHeaders": {"date": date}}})


@pytest.mark.parametrize("zone", [" GMT", "", " -0000", " +0000", " UTC"])
def test_a_date_is_in_utc_whatever_it_says_of_its_zone(zone: str) -> None:
    expected = datetime(2026, 11, 22, 3, 4, 5, tzinfo=UTC)
    assert time_of("Sun, 22 Nov 2026 03:04:05" + zone) == expected


@given(
    st.text(max_size=40)
    | st.from_regex(r"[A-Z][a-z]{2}, \d{1,3} [A-Z][a-z]{2} \d{1,6} \d\d:\d\d:\d\d ?[-+]?\w*")
    | st.sampled_from(["Mon, 01 Jan 0001 00:00:00 GMT", "Fri, 31 Dec 9999 23:59:59 GMT"])
)
def test_any_date_is_a_time_that_can_be_counted_with(date: str) -> None:
    time = time_of(date)
    assert time.tzinfo is not None
    assert abs(time - datetime.now(UTC)) < timedelta(days=366 * 21)


class _Odd(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    status = 200
    body = b""
    endless = False

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(self.status, "")
        if self.endless:
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            with contextlib.suppress(OSError):
                while True:
                    self.wfile.write(b"100000\r\n" + b" " * 1024**2 + b"\r\n")
            self.close_connection = True
            return
        self.send_header("Content-Type", "application/x-amz-json-1.0")
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def endpoint() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Odd)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("status", [200, 400, 500])
@pytest.mark.parametrize(
    "body",
    [
        b"\xff\xfe\x00",
        b'{"__type":"caf\xe9","message":"\xe9"}',
        b'{"ShardIterator":"\xff"}',
    ],
)
def test_bodies_in_no_encoding_are_errors_of_ours(
    endpoint: str, monkeypatch: pytest.MonkeyPatch, status: int, body: bytes
) -> None:
    monkeypatch.setattr(_Odd, "status", status)
    monkeypatch.setattr(_Odd, "body", body)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    connection = AwsConfig("us-east-1", endpoint_url=endpoint)
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


@pytest.mark.parametrize("status", [200, 400])
def test_an_error_that_nobody_holds_is_gone_and_its_connection_with_it(
    endpoint: str, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setattr(_Odd, "status", status)
    monkeypatch.setattr(_Odd, "body", b"\xff")
    client = for_worker(AwsConfig("us-east-1", endpoint_url=endpoint), ARN)
    calls: list[Callable[[], object]] = [
        lambda: list(client.list_streams()),  # through botocore, in a thread
        lambda: client.get_iterator(ARN, "shardId-1", TrimHorizon()),
    ]
    gc.disable()
    try:
        assert [raised(call)() for call in calls] == [None, None]
    finally:
        gc.enable()
    client.close()


@pytest.mark.parametrize("read_by", ["shortcut", "botocore"])
def test_an_answer_without_an_end_is_left_after_64_mb(
    endpoint: str, monkeypatch: pytest.MonkeyPatch, read_by: str
) -> None:
    monkeypatch.setattr(_Odd, "endless", True)
    connection = AwsConfig("us-east-1", endpoint_url=endpoint)
    client = for_worker(connection, ARN)
    if read_by == "botocore":
        client.shortcut = None
    with pytest.raises(UnexpectedAnswerError, match="GetRecords: an answer of more than 64 MB"):
        client.get_records("iterator")
    with pytest.raises(UnexpectedAnswerError, match="DescribeTable: an answer of more than 64 MB"):
        client.latest_stream("orders")
    client.close()


@pytest.mark.parametrize("status", [301, 307, 206])
@pytest.mark.parametrize("body", [b"", b'{"Records":[]}'])
def test_a_status_that_the_service_never_answers_is_named(
    endpoint: str, monkeypatch: pytest.MonkeyPatch, status: int, body: bytes
) -> None:
    monkeypatch.setattr(_Odd, "status", status)
    monkeypatch.setattr(_Odd, "body", body)
    client = for_worker(AwsConfig("us-east-1", endpoint_url=endpoint), ARN)
    with pytest.raises(WatcherError, match=f"GetRecords.* HTTP {status} with .* or a proxy"):
        client.get_records("iterator")
    client.close()


def test_an_emulators_short_number_goes_to_the_service_also_through_botocore(
    endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_Odd, "body", b'{"ShardIterator":"next"}')
    client = for_worker(AwsConfig("us-east-1", endpoint_url=endpoint), ARN)
    client.shortcut = None
    assert client.get_iterator(ARN, "shardId-1", AfterSequence("4"))[0] == "next"
    client.close()


def raised(call: Callable[[], object]) -> Callable[[], WatcherError | None]:
    try:
        call()
    except WatcherError as error:
        return weakref.ref(error)
    raise AssertionError("nothing is wrong")
