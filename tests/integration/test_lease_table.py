"""The item of a shared checkpoint, in DynamoDB Local, and as its answers are errors."""

from __future__ import annotations

import json
import random
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from tests.support.dynamodb_local import DynamoDBLocal
from watcher import watch
from watcher.aws.config import AwsConfig
from watcher.aws.lease_table import Leased, LeaseTable
from watcher.errors import CheckpointError, UsageError
from watcher.streams.checkpoint_format import Token, TokenShard, encode

ARN = "arn:aws:dynamodb:us-east-1:123456789012:table/orders/stream/2026-11-21T08:00:00.000"


@pytest.fixture
def table(dynamodb_local: DynamoDBLocal, monkeypatch: pytest.MonkeyPatch) -> LeaseTable:
    for name, value in dynamodb_local.environment.items():
        monkeypatch.setenv(name, value)  # AWS_ENDPOINT_URL is gone by
    made = LeaseTable.from_url("dynamodb://lease-table/a/b", AwsConfig(), None)
    made.make()
    return made


def token(shards: int) -> bytes:
    rng = random.Random(shards)

    def number() -> str:
        return str(rng.randrange(10**20, 10**21))

    names = [f"shardId-{number()}-{rng.randbytes(4).hex()}" for _ in range(shards)]
    rows = [TokenShard(name, "after_sequence", number(), parent=names[0]) for name in names]
    return encode(Token(ARN, names, rows))


def test_an_item_is_written_only_over_what_was_seen(table: LeaseTable) -> None:
    table.make()  # it is there already
    assert table.get() is None
    first = Leased("one", 1, 6.0, token(3))
    assert table.replace(first, None)
    assert not table.replace(first, None)
    assert table.get() == first
    second = Leased("two", 2, 6.0, b"")
    assert table.replace(second, first)
    assert not table.replace(Leased("one", 2, 6.0, b"x"), first)
    assert table.get() == second


@pytest.mark.parametrize("shards", [5, 100, 4_000])
def test_a_token_of_thousands_of_shards_fits(
    table: LeaseTable, dynamodb_local: DynamoDBLocal, shards: int
) -> None:
    there = table.get()
    large = Leased("one", 10, 6.0, token(shards))
    assert table.replace(large, there)
    assert table.get() == large
    key = {"name": {"S": "a/b"}}
    item = dynamodb_local.client().get_item(TableName="lease-table", Key=key)["Item"]
    assert ("token" in item) == (shards < 50), "text, as long as it is small"


def test_one_that_is_too_large_is_said(table: LeaseTable) -> None:
    with pytest.raises(CheckpointError, match=r"the token takes [\d,]+ KB, compressed"):
        table.replace(Leased("one", 1, 6.0, token(20_000)), table.get())


def test_another_table_is_refused(table: LeaseTable, dynamodb_local: DynamoDBLocal) -> None:
    dynamodb_local.create_table("not-positions", None)
    other = LeaseTable.from_url("dynamodb://not-positions/a", AwsConfig(), None)
    with pytest.raises(UsageError, match="its key has to be `name`"):
        other.make()


def test_whether_the_table_itself_has_answered_is_told(table: LeaseTable) -> None:
    gone = LeaseTable.from_url("dynamodb://no-such-table/a", AwsConfig(), None)
    with pytest.raises(CheckpointError) as answered:
        gone.get()
    assert answered.value.answered
    nobody = AwsConfig(endpoint_url="http://127.0.0.1:9")
    with pytest.raises(CheckpointError) as unanswered:
        LeaseTable.from_url("dynamodb://lease-table/a", nobody, None).get()
    assert not unanswered.value.answered


class Refusing(BaseHTTPRequestHandler):
    """DynamoDB, for somebody without permission."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        kind, what = "com.amazon.coral.service#AccessDeniedException", "User: x is not authorized"
        body = json.dumps({"__type": kind, "message": what}).encode()
        self.send_response(400)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *_: object) -> None:  # noqa: A002
        """Not on the test's output."""


def test_a_table_without_permission_is_said_with_the_action_that_is_missing(
    dynamodb_local: DynamoDBLocal, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in dynamodb_local.environment.items():
        monkeypatch.setenv(name, value)
    dynamodb_local.create_table("denied")
    with HTTPServer(("127.0.0.1", 0), Refusing) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        # The table's endpoint is another one than the stream's.
        monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", f"http://127.0.0.1:{server.server_port}")
        arn = dynamodb_local.client("dynamodbstreams").list_streams(TableName="denied")
        stream = arn["Streams"][0]["StreamArn"]
        try:
            with pytest.raises(UsageError) as told:
                watch(stream, [print], checkpoint="dynamodb://positions/orders", follow=False)
        finally:
            server.shutdown()
            thread.join()
    text = str(told.value)
    assert text.startswith("checkpoint dynamodb://positions/orders: no permission (")
    assert text.endswith("; the role needs dynamodb:GetItem on positions")
