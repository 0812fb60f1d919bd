"""A checkpoint shared through DynamoDB: an item of a table that is created on demand."""

from __future__ import annotations

import logging
import re
import zlib

import msgspec
from botocore import exceptions as boto

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
# A token up to this size is stored as text, readable for people and bloop; each KB costs money.
_PLAIN_BYTES = 16 * 1024
# DynamoDB's limit for an item is 400 KB; the rest is for the other attributes.
_MOST_BYTES = 396 * 1024
# The largest decompressed token.
_LARGEST = 64 * 1024 * 1024


class LeaseRecord(msgspec.Struct, frozen=True):
    """The item: the lease and the tokens."""

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


class LeaseTable:
    """A lease in one item, written only if it is unchanged.

    All methods raise CheckpointError where the service refuses.
    """

    def __init__(self, client: TablesClient, table: str, name: str) -> None:
        self.name = f"{SCHEME}{table}/{name}"
        self._client = client
        self._table = table
        self._name = name
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
            attempts=1,
            call_seconds=LEASE_CALL_SECONDS,
            patience_seconds=0.0,
        )
        return cls(quick, table, name)

    def prepare(self) -> None:
        """Creates the table if it does not exist. Raises UsageError for one with another key."""
        try:
            self._client.get(self._table, self._key)
        except (StreamError, TransientError) as error:
            code = error_code(error.__cause__)
            if code == "ValidationException":
                text = f"table {self._table} is not one for positions: its key has to be `name`"
                raise UsageError(f"{text}, a text, alone", "checkpoint", self.name) from error
            if code != "ResourceNotFoundException":
                raise self._error(error) from error
            self._create()

    def _create(self) -> None:
        logger.info(f"Creating table {self._table}, paid by request, for the positions")
        try:
            self._client.create_table(self._table, [_KEY], [_TYPE])
        except (StreamError, TransientError) as error:
            # Another program may be creating it.
            if error_code(error.__cause__) != "ResourceInUseException":
                raise self._error(error) from error
        try:
            self._client.wait_for(self._table)
        except (StreamError, TransientError) as error:
            raise self._error(error) from error

    def get(self) -> LeaseRecord | None:
        """Returns the lease in the item; None where there is none."""
        try:
            item = self._client.get(self._table, self._key)
        except (StreamError, TransientError) as error:
            raise self._error(error) from error
        return None if item is None else self._decoded(item)

    def replace(self, record: LeaseRecord, seen: LeaseRecord | None) -> bool:
        """Writes the item if `seen` is still there; False where it is not."""
        names = {"#holder": "holder", "#counter": "counter"}
        condition = Condition("attribute_not_exists(#name)", {"#name": "name"}, {})
        if seen is not None:
            values = {":holder": {"S": seen.holder}, ":counter": {"N": str(seen.counter)}}
            text = "#holder = :holder AND #counter = :counter"
            condition = Condition(text, names, values)
        try:
            return self._client.put(self._table, self._encoded(record), condition) is not None
        except (StreamError, TransientError) as error:
            raise self._error(error) from error

    def close(self) -> None:
        """Closes its connections."""
        self._client.close()

    def _encoded(self, record: LeaseRecord) -> WireItem:
        item: dict[str, WireValue] = {
            **self._key,
            "holder": {"S": record.holder},
            "counter": {"N": str(record.counter)},
            "seconds": {"N": f"{record.seconds:g}"},
        }
        if len(record.token) > _PLAIN_BYTES:
            packed = zlib.compress(record.token)
            if len(packed) > _MOST_BYTES:
                text = f"the positions take {len(packed) // 1000:,} KB, compressed, and an item "
                text += f"holds {_MOST_BYTES // 1000:,}: give s3://BUCKET/KEY, or fewer streams"
                raise CheckpointError(text, "checkpoint", self.name)
            item["token_zlib"] = {"B": packed}
        elif record.token:
            item["token"] = {"S": record.token.decode()}
        return item

    def _decoded(self, item: WireItem) -> LeaseRecord:
        try:
            return LeaseRecord(
                item["holder"]["S"],
                int(item["counter"]["N"]),
                float(item["seconds"]["N"]),
                _token(item),
            )
        except (KeyError, ValueError, zlib.error) as error:
            text = f"the item there was not written by a watch ({error!r}): choose another name"
            raise UsageError(text, "checkpoint", self.name) from None

    def _error(self, error: StreamError | TransientError) -> CheckpointError:
        return checkpoint_error(error, self.name)


def checkpoint_error(error: StreamError | TransientError, name: str) -> CheckpointError:
    """Returns the error for a shared checkpoint that can't be read or written."""
    cause = error.__cause__
    answered = isinstance(cause, boto.ClientError)
    if answered and isinstance(to_watcher_error(cause), CredentialsError):  # type: ignore[arg-type]
        answered = False  # the fault of our credentials
    return CheckpointError(str(error), "checkpoint", name, answered=answered)


def _token(item: WireItem) -> bytes:
    if "token_zlib" in item:
        packed = item["token_zlib"]["B"]
        return zlib.decompressobj().decompress(packed, _LARGEST)
    text: str = item.get("token", {"S": ""})["S"]
    return text.encode()
