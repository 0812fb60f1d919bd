"""Pytest fixtures for tests of handlers: a table with a stream on an embedded DynamoDB.

In a test module, or in the conftest.py at the top:

    pytest_plugins = ["watcher.testing"]

    def test_it(watched_table, capsys):
        watched_table.put({"pk": "a", "total": 250})
        watched_table.run("handlers/big_orders.py")
        assert "250" in capsys.readouterr().out

`record({"pk": "a"})` makes a record from plain Python values, without a table.

(PYTEST_DONT_REWRITE: nothing is asserted here, and tests may import the types.)
"""

from __future__ import annotations

import itertools
import logging
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeAlias

import boto3
import msgspec
import pytest
from boto3.dynamodb.types import TypeSerializer

from watcher.aws.model import WireItem
from watcher.delivery.callables import check_answer
from watcher.delivery.handler import Failure, Handler
from watcher.delivery.handler_modules import described, load
from watcher.errors import UsageError
from watcher.records.record import NativeItem, Record, image_of
from watcher.stream import Stream
from watcher.version import install

_REGION = "us-east-1"
_numbers = itertools.count(10**20)
_serializer = TypeSerializer()


def record(
    new: NativeItem | None = None,
    old: NativeItem | None = None,
    *,
    key: str | Iterable[str] = "pk",
    created_at: datetime | None = None,
    by_ttl: bool = False,
    table: str = "table",
) -> Record:
    """Returns a change as handlers get it: INSERT without `old`, REMOVE without `new`, or MODIFY.

    `new` and `old` are the item's native Python values, `key` names its key attributes; each record
    has a higher sequence number than the one before. Raises UsageError where a key attribute is
    missing.
    """
    names = [key] if isinstance(key, str) else [*key]
    images = {name: item for name, item in (("NewImage", new), ("OldImage", old)) if item}
    if not images:
        raise UsageError('give the item: record({"pk": "a"}), or record(old={"pk": "a"})')
    if by_ttl and new is not None:
        raise UsageError("it is for removals: give the item as old", "by_ttl")
    keys = [{name: item.get(name) for name in names} for item in images.values()]
    if None in keys[0].values() or keys[-1] != keys[0]:
        raise UsageError("both images need the attributes of the item's key", "key", names)
    images["Keys"] = keys[0]
    wire = {name: msgspec.Raw(image_of(_serialized(item))) for name, item in images.items()}
    change = {
        "eventID": uuid.uuid4().hex,
        "eventName": "REMOVE" if new is None else "INSERT" if old is None else "MODIFY",
        "eventVersion": "1.1",
        "eventSource": "aws:dynamodb",
        "awsRegion": _REGION,
        "dynamodb": {
            "ApproximateCreationDateTime": int((created_at or datetime.now(UTC)).timestamp()),
            **wire,
            "SequenceNumber": str(next(_numbers)),
            "SizeBytes": sum(len(bytes(image)) for image in wire.values()),
            "StreamViewType": "NEW_AND_OLD_IMAGES",
        },
    }
    if by_ttl:
        change["userIdentity"] = {"type": "Service", "principalId": "dynamodb.amazonaws.com"}
    stream = f"arn:aws:dynamodb:{_REGION}:123456789012:table/{table}/stream/2026-01-01T00:00:00.000"
    return Record.from_json(msgspec.json.encode(change), "shardId-00000001700000000000", stream)


def _serialized(item: NativeItem) -> WireItem:
    return {name: _serializer.serialize(value) for name, value in item.items()}


class WatchedTable:
    """A table with a stream, for tests of handlers; items are native Python values."""

    def __init__(self, key: Mapping[str, str], view_type: str) -> None:
        kinds = zip(key, ("HASH", "RANGE"), strict=False)
        self.name = f"table-{uuid.uuid4().hex[:8]}"
        self._table = boto3.resource("dynamodb").create_table(
            TableName=self.name,
            KeySchema=[{"AttributeName": name, "KeyType": kind} for name, kind in kinds],
            AttributeDefinitions=[
                {"AttributeName": name, "AttributeType": kind} for name, kind in key.items()
            ],
            BillingMode="PAY_PER_REQUEST",
            StreamSpecification={"StreamEnabled": True, "StreamViewType": view_type},
        )
        self.stream_arn: str = self._table.latest_stream_arn
        self._stream = Stream(self.stream_arn, "trim_horizon")

    def put(self, item: NativeItem) -> None:
        """Puts an item: an INSERT, or a MODIFY where one with its key exists."""
        self._table.put_item(Item=dict(item))

    def update(self, key: NativeItem, **attributes: object) -> None:
        """Sets some attributes of an item: a MODIFY."""
        changes = {name: {"Action": "PUT", "Value": value} for name, value in attributes.items()}
        self._table.update_item(Key=dict(key), AttributeUpdates=changes)

    def delete(self, key: NativeItem) -> None:
        """Deletes an item: a REMOVE."""
        self._table.delete_item(Key=dict(key))

    def changes(self) -> list[Record]:
        """Returns the records of the changes since the last call."""
        self._stream.heartbeat()
        return list(iter(self._stream.__next__, None))

    def run(
        self, handler: str | Path | Handler | Callable[[Record], object], **options: object
    ) -> list[Record]:
        """Runs a handler over the changes since the last call, and closes it; returns the records.

        `handler` is a module's file (imported again, and given the options), a function, or the
        result of `lambda_function`. Its errors are raised here.
        """
        if isinstance(handler, str | Path):
            handler = load(described(Path(handler)), options)
        loaded = handler if isinstance(handler, Handler) else Handler("handler", handler)
        records = self.changes()
        try:
            for record in records:
                check_answer(loaded.handle(record))
            loaded.drain()
        except Failure as failure:  # of a batch
            raise failure.error from None
        check_answer(loaded.close())
        return records


NewTable: TypeAlias = Callable[..., WatchedTable]
"""The fixture `new_table`: a function of a key (names and types), and a view type."""


@pytest.fixture(scope="session")
def embedded_dynamodb() -> Iterator[str]:
    """The endpoint of an embedded DynamoDB (moto), which runs until the tests' end."""
    try:
        from moto.server import ThreadedMotoServer
    except ImportError:
        raise UsageError(f"tests of handlers need moto: {install('demo')}") from None
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def new_table(embedded_dynamodb: str, monkeypatch: pytest.MonkeyPatch) -> NewTable:
    """Creates tables with streams, by default with the string key `pk` and both images.

    Meanwhile boto3 uses the embedded DynamoDB.
    """
    # No call may reach a real account, even if this shell is logged in to one.
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": _REGION,
        "AWS_DEFAULT_REGION": _REGION,
        "AWS_ENDPOINT_URL": embedded_dynamodb,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)

    def make(
        key: Mapping[str, str] | None = None, view_type: str = "NEW_AND_OLD_IMAGES"
    ) -> WatchedTable:
        return WatchedTable(key or {"pk": "S"}, view_type)

    return make


@pytest.fixture
def watched_table(new_table: NewTable) -> WatchedTable:
    """A table for this test alone: its key is the string `pk`, its stream has both images."""
    return new_table()
