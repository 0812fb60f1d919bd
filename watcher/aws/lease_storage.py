"""A shared checkpoint with its lease: an item in DynamoDB or an object in S3, compared and set."""

from __future__ import annotations

import logging
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
from botocore import exceptions as boto

from watcher.aws import s3
from watcher.aws.config import AwsConfig
from watcher.aws.error_mapping import error_code, to_watcher_error
from watcher.aws.model import WireItem, WireValue
from watcher.aws.tables import Condition, TablesClient
from watcher.errors import (
    CheckpointError,
    CredentialsError,
    StreamError,
    TransientError,
    UsageError,
)

logger = logging.getLogger("watcher")

SCHEME = "dynamodb://"
LEASE_CALL_SECONDS = 2.0
"""The timeout of a lease's write: a slow one must leave time for another."""
_TABLE = re.compile(r"[a-zA-Z0-9_.-]{3,255}")
_KEY = {"AttributeName": "name", "KeyType": "HASH"}
_TYPE = {"AttributeName": "name", "AttributeType": "S"}
# A record up to this size is stored as text, readable for people; each KB costs money.
_PLAIN_BYTES = 16 * 1024
# DynamoDB's limit for an item is 400 KB; the rest is for the other attributes.
_MOST_BYTES = 396 * 1024
# The largest decompressed record.
_LARGEST = 64 * 1024 * 1024


class LeaseRecord(msgspec.Struct, frozen=True):
    """The stored record: the lease and the tokens."""

    holder: str
    """The id of the lease's holder; "" without one."""
    counter: int
    """The number of writes."""
    seconds: float
    """The time after each write in which the holder may deliver."""
    token: bytes
    """The tokens' JSON text; empty where none was stored."""

    @property
    def process(self) -> str:
        """The holder's host and process, for messages."""
        return self.holder.rpartition(":")[0]


class _Content(msgspec.Struct, frozen=True):
    """A record's JSON, with the token as part of it."""

    holder: str
    counter: int
    seconds: float
    token: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


def _encoded(record: LeaseRecord) -> bytes:
    token = msgspec.Raw(record.token) if record.token else msgspec.UNSET
    content = _Content(record.holder, record.counter, record.seconds, token)
    return msgspec.json.encode(content)


def _decoded(text: bytes, name: str) -> LeaseRecord:
    try:
        content = msgspec.json.decode(text, type=_Content)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise _not_ours(error, name) from None
    token = bytes(content.token) if content.token else b""
    return LeaseRecord(content.holder, content.counter, content.seconds, token)


def _not_ours(error: Exception, name: str) -> UsageError:
    reason = f"its content was not written by a watch ({error!r}): choose another name"
    return UsageError(reason, "checkpoint", name)


@contextmanager
def _refusals(name: str) -> Iterator[None]:
    """Raises the service's errors as CheckpointError."""
    try:
        yield
    except (StreamError, TransientError) as error:
        cause = error.__cause__
        answered = isinstance(cause, boto.ClientError) and not isinstance(
            to_watcher_error(cause), CredentialsError
        )
        raise CheckpointError(str(error), "checkpoint", name, answered=answered) from error


class LeaseTable:
    """A record in one item of a table that is created on demand.

    All methods raise CheckpointError where the service refuses.
    """

    def __init__(self, client: TablesClient, table: str, name: str) -> None:
        self.name = f"{SCHEME}{table}/{name}"
        self.close = client.close
        self._client = client
        self._table = table
        self._key = {"name": {"S": name}}

    @classmethod
    def from_url(cls, url: str, connection: AwsConfig, region: str | None) -> LeaseTable:
        """Returns the item of a URL (`dynamodb://TABLE/NAME`). Raises UsageError, StreamError."""
        table, _, name = url.removeprefix(SCHEME).partition("/")
        if not _TABLE.fullmatch(table) or not name:
            raise UsageError(f"give {SCHEME}TABLE/NAME", "checkpoint", url)
        quick = TablesClient(
            connection,
            region,
            call_seconds=LEASE_CALL_SECONDS,
            patience_seconds=0.0,
        )
        return cls(quick, table, name)

    def prepare(self) -> None:
        """Creates the table if it does not exist. Raises UsageError for one with another key."""
        with _refusals(self.name):
            try:
                self._client.get(self._table, self._key)
            except StreamError as error:
                code = error_code(error.__cause__)
                if code == "ValidationException":
                    text = f"table {self._table} is not one for positions: its key has to be `name`"
                    raise UsageError(f"{text}, a text, alone", "checkpoint", self.name) from error
                if code != "ResourceNotFoundException":
                    raise
                self._create()

    def _create(self) -> None:
        logger.info(f"Creating table {self._table}, paid by request, for the positions")
        try:
            self._client.create_table(self._table, [_KEY], [_TYPE])
        except StreamError as error:
            # Another program may be creating it.
            if error_code(error.__cause__) != "ResourceInUseException":
                raise
        self._client.wait_for(self._table)

    def get(self) -> LeaseRecord | None:
        """Returns the record in the item; None where there is none."""
        with _refusals(self.name):
            item = self._client.get(self._table, self._key)
        if item is None:
            return None
        try:
            packed = item.get("record_zlib", {}).get("B")
            text = zlib.decompressobj().decompress(packed, _LARGEST) if packed else b""
            return _decoded(text or item["record"]["S"].encode(), self.name)
        except (KeyError, zlib.error) as error:
            raise _not_ours(error, self.name) from None

    def replace(self, record: LeaseRecord, seen: LeaseRecord | None) -> bool:
        """Writes the item if `seen` is still there; False where it is not."""
        condition = Condition("attribute_not_exists(#name)", {"#name": "name"}, {})
        if seen is not None:
            version = {":version": {"S": _version(seen)}}
            condition = Condition("#version = :version", {"#version": "version"}, version)
        with _refusals(self.name):
            return self._client.put(self._table, self._item(record), condition) is not None

    def _item(self, record: LeaseRecord) -> WireItem:
        item: dict[str, WireValue] = {**self._key, "version": {"S": _version(record)}}
        text = _encoded(record)
        if len(text) <= _PLAIN_BYTES:
            return {**item, "record": {"S": text.decode()}}
        packed = zlib.compress(text)
        if len(packed) > _MOST_BYTES:
            reason = f"the positions take {len(packed) // 1000:,} KB, compressed, and an item "
            reason += f"holds {_MOST_BYTES // 1000:,}: give s3://BUCKET/KEY, or fewer streams"
            raise CheckpointError(reason, "checkpoint", self.name)
        return {**item, "record_zlib": {"B": packed}}


def _version(record: LeaseRecord) -> str:
    return f"{record.counter} {record.holder}"


class LeaseObject:
    """A record in one object; S3 compares the ETag of each write.

    https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html
    """

    def __init__(self, client: s3.ObjectsClient, url: str) -> None:
        self.name = url
        self.close = client.close
        self._client = client
        self._seen: LeaseRecord | None = None
        self._etag = ""  # of `_seen`

    @classmethod
    def from_url(cls, url: str, connection: AwsConfig, region: str | None) -> LeaseObject:
        """Returns the object of a URL (`s3://BUCKET/KEY`). Raises UsageError, StreamError."""
        bucket, _, key = url.removeprefix(s3.SCHEME).partition("/")
        if not bucket or not key or key.endswith("/"):
            raise UsageError(f"give {s3.SCHEME}BUCKET/KEY", "checkpoint", url)
        quick = s3.ObjectsClient(connection, region, attempts=1, call_seconds=LEASE_CALL_SECONDS)
        return cls(quick, url)

    def prepare(self) -> None:
        """Checks that the bucket answers. Raises CheckpointError, UsageError."""
        self.get()

    def get(self) -> LeaseRecord | None:
        """Returns the record in the object; None where there is none."""
        with _refusals(self.name):
            found = self._client.get(self.name)
        if found is None:
            return None
        body, etag = found
        self._seen, self._etag = _decoded(body, self.name), etag
        return self._seen

    def replace(self, record: LeaseRecord, seen: LeaseRecord | None) -> bool:
        """Writes the object if `seen` is still there; False where it is not."""
        if seen is not None and seen != self._seen and self.get() != seen:
            return False
        body, etag = _encoded(record), None if seen is None else self._etag
        # Two simultaneous writes conflict: a watch that wants the lease just looks again. For the
        # holder, the other write may be its own earlier one, so the conflict proves nothing.
        is_ours = seen is not None and seen.holder == record.holder
        with _refusals(self.name):
            written = self._client.put_if(self.name, body, etag, is_retried=not is_ours)
        if written is not None:
            self._seen, self._etag = record, written
        return written is not None
